#include "examples/trainer/layers.h"

#include <algorithm>
#include <cmath>

#include "examples/trainer/kernels.h"
#include "examples/trainer/matmul.h"

namespace commsched::trainer {
namespace {

// Queries are taken in blocks of this many rows, and a block is multiplied
// with the keys up to its last row only: the masked upper triangle is skipped
// but for the half block on the diagonal. Smaller blocks skip more and feed
// the matrix product worse.
constexpr int64_t kQueryBlock = 64;

CausalRows BlockAt(const AttentionHead& head, int64_t first_query) {
  return {.first_query = first_query,
          .rows = std::min(kQueryBlock, head.seq - first_query),
          .stride = head.seq};
}

float ScoreScale(const AttentionHead& head) {
  return 1.0f / std::sqrt(static_cast<float>(head.size));
}

// Backward goes from the last block to the first: the last one sees every key,
// so it can write dk and dv where the others add to them.
int64_t LastBlock(const AttentionHead& head) {
  return (head.seq - 1) / kQueryBlock * kQueryBlock;
}

// Where query head `h` of sequence `b` lies in the packed arrays.
struct Place {
  int64_t q;
  int64_t k;
  int64_t v;
  int64_t probabilities;
  int64_t y;
};

Place PlaceOf(const AttentionShape& shape, int64_t b, int64_t h) {
  const int64_t t = shape.seq;
  const int64_t c = shape.channels();
  const int64_t kv_heads = shape.num_kv_heads();
  const int64_t row = b * t * shape.row();
  const int64_t k = row + c + h * kv_heads / shape.heads * shape.head_size;
  return {.q = row + h * shape.head_size,
          .k = k,
          .v = k + kv_heads * shape.head_size,
          .probabilities = (b * shape.heads + h) * t * t,
          .y = b * t * c + h * shape.head_size};
}

AttentionHead HeadAt(const AttentionShape& shape, const float* qkv,
                     const Place& place) {
  return {.seq = shape.seq,
          .size = shape.head_size,
          .q_stride = shape.row(),
          .kv_stride = shape.row(),
          .y_stride = shape.channels(),
          .q = qkv + place.q,
          .k = qkv + place.k,
          .v = qkv + place.v};
}

}  // namespace

void LinearForward(const LinearShape& shape, const float* x,
                   const float* weight, float* y) {
  Matmul({shape.rows, shape.out, shape.in}, {x, shape.in}, {weight, shape.out},
         {y, shape.out});
}

void LinearForwardAdd(const LinearShape& shape, const float* x,
                      const float* weight, float* y) {
  Matmul({shape.rows, shape.out, shape.in}, {x, shape.in}, {weight, shape.out},
         {y, shape.out, /*accumulate=*/true});
}

void LinearBackwardInput(const LinearShape& shape, const float* dy,
                         const float* weight, float* dx) {
  Matmul({shape.rows, shape.in, shape.out}, {dy, shape.out},
         {weight, shape.out, /*transposed=*/true}, {dx, shape.in});
}

void LinearBackwardWeight(const LinearShape& shape, const float* x,
                          const float* dy, float* d_weight) {
  Matmul({shape.in, shape.out, shape.rows}, {x, shape.in, /*transposed=*/true},
         {dy, shape.out}, {d_weight, shape.out, /*accumulate=*/true});
}

void EmbeddingForward(const EmbeddingShape& shape, const uint8_t* tokens,
                      const float* wte, const float* wpe, float* x) {
  const int64_t c = shape.channels;
  for (int64_t row = 0; row < shape.batch * shape.seq; ++row) {
    CopyWithBias(wte + tokens[row] * c, wpe + shape.position(row) * c, 1, c,
                 x + row * c);
  }
}

void EmbeddingBackward(const EmbeddingShape& shape, const uint8_t* tokens,
                       const float* dx, float* d_wte, float* d_wpe) {
  const int64_t c = shape.channels;
  for (int64_t row = 0; row < shape.batch * shape.seq; ++row) {
    AddBias(dx + row * c, 1, c, d_wte + tokens[row] * c);
    AddBias(dx + row * c, 1, c, d_wpe + shape.position(row) * c);
  }
}

int64_t AttentionScratchCount(int64_t seq) {
  return std::min(kQueryBlock, seq) * seq;
}

void HeadForward(const AttentionHead& head, float* probabilities, float* y) {
  for (int64_t first = 0; first < head.seq; first += kQueryBlock) {
    const CausalRows block = BlockAt(head, first);
    float* p = probabilities + first * head.seq;
    Matmul({block.rows, block.keys(), head.size},
           {head.q + first * head.q_stride, head.q_stride},
           {head.k, head.kv_stride, /*transposed=*/true}, {p, head.seq});
    CausalSoftmax(block, ScoreScale(head), p);
    Matmul({block.rows, head.size, block.keys()}, {p, head.seq},
           {head.v, head.kv_stride},
           {y + first * head.y_stride, head.y_stride});
  }
}

void HeadBackwardValue(const AttentionHead& head, const float* probabilities,
                       const float* dy, bool accumulate, float* dv) {
  const int64_t last = LastBlock(head);
  for (int64_t first = last; first >= 0; first -= kQueryBlock) {
    const CausalRows block = BlockAt(head, first);
    Matmul({block.keys(), head.size, block.rows},
           {probabilities + first * head.seq, head.seq, /*transposed=*/true},
           {dy + first * head.y_stride, head.y_stride},
           {dv, head.kv_stride, accumulate || first != last});
  }
}

void HeadBackwardQueryKey(const AttentionHead& head, const float* probabilities,
                          const float* dy, bool accumulate, float* scratch,
                          float* dq, float* dk) {
  const int64_t last = LastBlock(head);
  for (int64_t first = last; first >= 0; first -= kQueryBlock) {
    const CausalRows block = BlockAt(head, first);
    const int64_t keys = block.keys();
    Matmul({block.rows, keys, head.size},
           {dy + first * head.y_stride, head.y_stride},
           {head.v, head.kv_stride, /*transposed=*/true}, {scratch, keys});
    CausalSoftmaxBackward(block, probabilities + first * head.seq,
                          ScoreScale(head), keys, scratch);
    Matmul({block.rows, head.size, keys}, {scratch, keys},
           {head.k, head.kv_stride},
           {dq + first * head.q_stride, head.q_stride});
    Matmul({keys, head.size, block.rows}, {scratch, keys, /*transposed=*/true},
           {head.q + first * head.q_stride, head.q_stride},
           {dk, head.kv_stride, accumulate || first != last});
  }
}

void AttentionForward(const AttentionShape& shape, const float* qkv,
                      float* probabilities, float* y) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Place place = PlaceOf(shape, b, h);
      HeadForward(HeadAt(shape, qkv, place),
                  probabilities + place.probabilities, y + place.y);
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const float* qkv,
                       const float* probabilities, const float* dy,
                       float* scratch, float* d_qkv) {
  const int64_t group = shape.heads / shape.num_kv_heads();
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Place place = PlaceOf(shape, b, h);
      const AttentionHead head = HeadAt(shape, qkv, place);
      const float* p = probabilities + place.probabilities;
      const bool accumulate = h % group != 0;
      HeadBackwardValue(head, p, dy + place.y, accumulate, d_qkv + place.v);
      HeadBackwardQueryKey(head, p, dy + place.y, accumulate, scratch,
                           d_qkv + place.q, d_qkv + place.k);
    }
  }
}

}  // namespace commsched::trainer

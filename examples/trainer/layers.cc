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

// One head of one sequence inside the packed arrays.
struct Head {
  int64_t qkv;            // Offset of its first query; keys are at + C.
  int64_t probabilities;  // Offset of its (T, T) matrix.
  int64_t y;              // Offset of its first output.
};

Head HeadAt(const AttentionShape& shape, int64_t b, int64_t h) {
  const int64_t t = shape.seq;
  const int64_t c = shape.channels();
  return {.qkv = b * t * 3 * c + h * shape.head_size,
          .probabilities = (b * shape.heads + h) * t * t,
          .y = b * t * c + h * shape.head_size};
}

CausalRows BlockAt(const AttentionShape& shape, int64_t first_query) {
  return {.first_query = first_query,
          .rows = std::min(kQueryBlock, shape.seq - first_query),
          .stride = shape.seq};
}

float ScoreScale(const AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_size));
}

void HeadForward(const AttentionShape& shape, const float* q,
                 float* probabilities, float* y) {
  const int64_t c = shape.channels();
  const int64_t size = shape.head_size;
  const Operand keys = {q + c, 3 * c};
  const Operand values = {q + 2 * c, 3 * c};
  for (int64_t first = 0; first < shape.seq; first += kQueryBlock) {
    const CausalRows block = BlockAt(shape, first);
    float* p = probabilities + first * shape.seq;
    Matmul({block.rows, block.keys(), size}, {q + first * 3 * c, 3 * c},
           {keys.data, keys.stride, /*transposed=*/true}, {p, shape.seq});
    CausalSoftmax(block, ScoreScale(shape), p);
    Matmul({block.rows, size, block.keys()}, {p, shape.seq}, values,
           {y + first * c, c});
  }
}

// Goes from the last block to the first: the last one sees every key, so it
// can write dk and dv where the others add to them.
void HeadBackward(const AttentionShape& shape, const float* q,
                  const float* probabilities, const float* dy, float* scratch,
                  float* dq) {
  const int64_t t = shape.seq;
  const int64_t c = shape.channels();
  const int64_t size = shape.head_size;
  const int64_t last = (t - 1) / kQueryBlock * kQueryBlock;
  for (int64_t first = last; first >= 0; first -= kQueryBlock) {
    const CausalRows block = BlockAt(shape, first);
    const int64_t keys = block.keys();
    const bool accumulate = first != last;
    const float* p = probabilities + first * t;
    const float* dy_block = dy + first * c;
    Matmul({keys, size, block.rows}, {p, t, /*transposed=*/true}, {dy_block, c},
           {dq + 2 * c, 3 * c, accumulate});
    Matmul({block.rows, keys, size}, {dy_block, c},
           {q + 2 * c, 3 * c, /*transposed=*/true}, {scratch, keys});
    CausalSoftmaxBackward(block, p, ScoreScale(shape), keys, scratch);
    Matmul({block.rows, size, keys}, {scratch, keys}, {q + c, 3 * c},
           {dq + first * 3 * c, 3 * c});
    Matmul({keys, size, block.rows}, {scratch, keys, /*transposed=*/true},
           {q + first * 3 * c, 3 * c}, {dq + c, 3 * c, accumulate});
  }
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
    CopyWithBias(wte + tokens[row] * c, wpe + row % shape.seq * c, 1, c,
                 x + row * c);
  }
}

void EmbeddingBackward(const EmbeddingShape& shape, const uint8_t* tokens,
                       const float* dx, float* d_wte, float* d_wpe) {
  const int64_t c = shape.channels;
  for (int64_t row = 0; row < shape.batch * shape.seq; ++row) {
    AddTo(dx + row * c, c, d_wte + tokens[row] * c);
    AddTo(dx + row * c, c, d_wpe + row % shape.seq * c);
  }
}

int64_t AttentionShape::scratch_count() const {
  return std::min(kQueryBlock, seq) * seq;
}

void AttentionForward(const AttentionShape& shape, const float* qkv,
                      float* probabilities, float* y) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head head = HeadAt(shape, b, h);
      HeadForward(shape, qkv + head.qkv, probabilities + head.probabilities,
                  y + head.y);
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const float* qkv,
                       const float* probabilities, const float* dy,
                       float* scratch, float* d_qkv) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Head head = HeadAt(shape, b, h);
      HeadBackward(shape, qkv + head.qkv, probabilities + head.probabilities,
                   dy + head.y, scratch, d_qkv + head.qkv);
    }
  }
}

}  // namespace commsched::trainer

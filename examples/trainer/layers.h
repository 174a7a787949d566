#ifndef COMMSCHED_EXAMPLES_TRAINER_LAYERS_H_
#define COMMSCHED_EXAMPLES_TRAINER_LAYERS_H_

// The layers of a transformer, forward and backward, over packed row-major
// arrays. B is batch, T sequence length, C channels, H heads, V vocabulary and
// R = B T rows.
//
// A backward writes the gradient of its input and *adds* the gradients of
// parameters, so that micro-batches accumulate. All functions are thread-safe:
// they touch their arguments only.

#include <cstdint>

namespace commsched::trainer {

// y (rows, out) = x (rows, in) weight (in, out) + bias (out).
struct LinearShape {
  int64_t rows;
  int64_t in;
  int64_t out;
};

// Leaves the bias out: every caller has a kernel that adds it on the way.
void LinearForward(const LinearShape& shape, const float* x,
                   const float* weight, float* y);

// y += x weight.
void LinearForwardAdd(const LinearShape& shape, const float* x,
                      const float* weight, float* y);

void LinearBackwardInput(const LinearShape& shape, const float* dy,
                         const float* weight, float* dx);

void LinearBackwardWeight(const LinearShape& shape, const float* x,
                          const float* dy, float* d_weight);

// x (R, C) = wte[token] + wpe[position], tokens (B, T) or, time-major, (T, B).
struct EmbeddingShape {
  int64_t batch;
  int64_t seq;
  int64_t channels;
  int64_t first_position = 0;
  bool time_major = false;

  int64_t position(int64_t row) const {
    return first_position + (time_major ? row / batch : row % seq);
  }
};

void EmbeddingForward(const EmbeddingShape& shape, const uint8_t* tokens,
                      const float* wte, const float* wpe, float* x);

void EmbeddingBackward(const EmbeddingShape& shape, const uint8_t* tokens,
                       const float* dx, float* d_wte, float* d_wpe);

// Causal self-attention of one head of one sequence: T rows of S elements,
// those of queries, of keys and values, and of outputs each a stride apart.
// Probabilities are (T, T), of which only columns that the query's block of
// rows can see are written or read.
struct AttentionHead {
  int64_t seq;
  int64_t size;
  int64_t q_stride;
  int64_t kv_stride;
  int64_t y_stride;
  const float* q;
  const float* k;
  const float* v;
};

// Elements of scratch that HeadBackwardQueryKey needs.
int64_t AttentionScratchCount(int64_t seq);

void HeadForward(const AttentionHead& head, float* probabilities, float* y);

// Heads that share keys and values add up their gradients: all but the first
// set `accumulate`. Gradients have the strides of what they are the gradients
// of.
void HeadBackwardValue(const AttentionHead& head, const float* probabilities,
                       const float* dy, bool accumulate, float* dv);
void HeadBackwardQueryKey(const AttentionHead& head, const float* probabilities,
                          const float* dy, bool accumulate, float* scratch,
                          float* dq, float* dk);

// All heads. qkv (B, T, H + 2 K, S) of H query and K key and value heads, query
// head h with the keys and values of h K / H; probabilities (B, H, T, T); y
// (B, T, H, S).
struct AttentionShape {
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t head_size;
  int64_t kv_heads = 0;  // 0: as many as `heads`.

  int64_t channels() const { return heads * head_size; }
  int64_t num_kv_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  int64_t row() const { return (heads + 2 * num_kv_heads()) * head_size; }
  // Elements of scratch that AttentionBackward needs.
  int64_t scratch_count() const { return AttentionScratchCount(seq); }
};

void AttentionForward(const AttentionShape& shape, const float* qkv,
                      float* probabilities, float* y);

void AttentionBackward(const AttentionShape& shape, const float* qkv,
                       const float* probabilities, const float* dy,
                       float* scratch, float* d_qkv);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_LAYERS_H_

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

// x (R, C) = wte[token] + wpe[position], tokens (B, T).
struct EmbeddingShape {
  int64_t batch;
  int64_t seq;
  int64_t channels;
};

void EmbeddingForward(const EmbeddingShape& shape, const uint8_t* tokens,
                      const float* wte, const float* wpe, float* x);

void EmbeddingBackward(const EmbeddingShape& shape, const uint8_t* tokens,
                       const float* dx, float* d_wte, float* d_wpe);

// Causal self-attention. qkv (B, T, 3, H, C / H); probabilities (B, H, T, T),
// of which only columns that the query's block of rows can see are written or
// read; y (B, T, H, C / H).
struct AttentionShape {
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t head_size;

  int64_t channels() const { return heads * head_size; }
  // Elements of scratch that AttentionBackward needs.
  int64_t scratch_count() const;
};

void AttentionForward(const AttentionShape& shape, const float* qkv,
                      float* probabilities, float* y);

void AttentionBackward(const AttentionShape& shape, const float* qkv,
                       const float* probabilities, const float* dy,
                       float* scratch, float* d_qkv);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_LAYERS_H_

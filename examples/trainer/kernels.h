#ifndef COMMSCHED_EXAMPLES_TRAINER_KERNELS_H_
#define COMMSCHED_EXAMPLES_TRAINER_KERNELS_H_

// The loops of the model that are not matrix products: single-threaded,
// vectorised for the CPU they run on, the same bits from the same inputs every
// time on that CPU. Matrices are row-major and packed unless a stride is
// given; pointers do not overlap unless "in place" is said.
//
// All functions are thread-safe: they touch their arguments only.

#include <cstdint>

namespace commsched::trainer {

// x[r, c] += bias[c].
void AddBias(const float* bias, int64_t rows, int64_t cols, float* x);

// out[r, c] = x[r, c] + bias[c].
void CopyWithBias(const float* x, const float* bias, int64_t rows, int64_t cols,
                  float* out);

// x[r, c] += bias[c], then out[r, c] = gelu(x[r, c]).
void AddBiasAndGelu(const float* bias, int64_t rows, int64_t cols, float* x,
                    float* out);

// d[r, c] *= gelu'(x[r, c]), then d_bias[c] += sum over r of d[r, c].
void GeluBackward(const float* x, int64_t rows, int64_t cols, float* d,
                  float* d_bias);

// d_bias[c] += sum over r of d[r, c].
void AddColumnSums(const float* d, int64_t rows, int64_t cols, float* d_bias);

// Layer normalisation of each row, epsilon 1e-5. `mean` and `inverse_deviation`
// have an element per row.
struct LayerNormStatistics {
  float* mean;
  float* inverse_deviation;
};
void LayerNorm(const float* x, const float* weight, const float* bias,
               int64_t rows, int64_t cols, float* out,
               const LayerNormStatistics& statistics);

// Adds to every gradient, dx too: x also flows past the norm in a residual.
struct LayerNormGradients {
  float* x;
  float* weight;
  float* bias;
};
void LayerNormBackward(const float* d_out, const float* x, const float* weight,
                       const LayerNormStatistics& statistics, int64_t rows,
                       int64_t cols, const LayerNormGradients& gradients);

// Rows of attention scores for the queries first_query, first_query + 1, ...
// Row r sees the keys 0 to first_query + r; it is `stride` from the next.
struct CausalRows {
  int64_t first_query;
  int64_t rows;
  int64_t stride;

  int64_t keys() const { return first_query + rows; }
};

// In place: row = softmax(scale row) over the keys that it sees, 0 for the
// others up to keys().
void CausalSoftmax(const CausalRows& shape, float scale, float* scores);

// In place: from d = dL/dprobabilities to dL/dscores, over keys() columns.
// `probabilities` has the stride of `shape`, `d` is packed to `d_stride`.
void CausalSoftmaxBackward(const CausalRows& shape, const float* probabilities,
                           float scale, int64_t d_stride, float* d);

// Returns the sum over rows of -log softmax(logits[r])[targets[r]] and writes
// the log of each row's sum of exponentials.
double CrossEntropy(const float* logits, const uint8_t* targets, int64_t rows,
                    int64_t vocab, float* log_sums);

// d[r] = scale (softmax(logits[r]) - one_hot(targets[r])).
void CrossEntropyBackward(const float* logits, const uint8_t* targets,
                          const float* log_sums, int64_t rows, int64_t vocab,
                          float scale, float* d);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_KERNELS_H_

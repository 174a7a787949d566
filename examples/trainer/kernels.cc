#include "examples/trainer/kernels.h"

#include <algorithm>
#include <cmath>

#include "examples/trainer/vector_math.h"

// Every kernel is compiled for three instruction sets and the loader picks one.
// Not under sanitizers: the resolvers run before their runtime is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COMMSCHED_SIMD \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define COMMSCHED_SIMD
#endif

// Sums and maxima say `omp simd reduction`, which allows the compiler to keep
// one partial result per vector lane; without it float sums stay scalar.

namespace commsched::trainer {

COMMSCHED_SIMD void AddBias(const float* __restrict bias, int64_t rows,
                            int64_t cols, float* __restrict x) {
  for (int64_t r = 0; r < rows; ++r, x += cols) {
    for (int64_t c = 0; c < cols; ++c) x[c] += bias[c];
  }
}

COMMSCHED_SIMD void CopyWithBias(const float* __restrict x,
                                 const float* __restrict bias, int64_t rows,
                                 int64_t cols, float* __restrict out) {
  for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
    for (int64_t c = 0; c < cols; ++c) out[c] = x[c] + bias[c];
  }
}

COMMSCHED_SIMD void AddBiasAndGelu(const float* __restrict bias, int64_t rows,
                                   int64_t cols, float* __restrict x,
                                   float* __restrict out) {
  for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
    for (int64_t c = 0; c < cols; ++c) {
      const float biased = x[c] + bias[c];
      x[c] = biased;
      out[c] = VectorGelu(biased);
    }
  }
}

COMMSCHED_SIMD void GeluBackward(const float* __restrict x, int64_t rows,
                                 int64_t cols, float* __restrict d,
                                 float* __restrict d_bias) {
  for (int64_t r = 0; r < rows; ++r, x += cols, d += cols) {
    for (int64_t c = 0; c < cols; ++c) {
      const float product = d[c] * VectorGeluDerivative(x[c]);
      d[c] = product;
      d_bias[c] += product;
    }
  }
}

COMMSCHED_SIMD void AddColumnSums(const float* __restrict d, int64_t rows,
                                  int64_t cols, float* __restrict d_bias) {
  for (int64_t r = 0; r < rows; ++r, d += cols) {
    for (int64_t c = 0; c < cols; ++c) d_bias[c] += d[c];
  }
}

COMMSCHED_SIMD void LayerNorm(const float* __restrict x,
                              const float* __restrict weight,
                              const float* __restrict bias, int64_t rows,
                              int64_t cols, float* __restrict out,
                              const LayerNormStatistics& statistics) {
  constexpr float kEpsilon = 1e-5f;
  const float inverse_cols = 1.0f / static_cast<float>(cols);
  for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; ++c) sum += x[c];
    const float mean = sum * inverse_cols;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < cols; ++c) {
      const float centred = x[c] - mean;
      squares += centred * centred;
    }
    const float inverse = 1.0f / std::sqrt(squares * inverse_cols + kEpsilon);
    for (int64_t c = 0; c < cols; ++c) {
      out[c] = (x[c] - mean) * inverse * weight[c] + bias[c];
    }
    statistics.mean[r] = mean;
    statistics.inverse_deviation[r] = inverse;
  }
}

COMMSCHED_SIMD void LayerNormBackward(const float* __restrict d_out,
                                      const float* __restrict x,
                                      const float* __restrict weight,
                                      const LayerNormStatistics& statistics,
                                      int64_t rows, int64_t cols,
                                      const LayerNormGradients& gradients) {
  const float inverse_cols = 1.0f / static_cast<float>(cols);
  float* __restrict d_weight = gradients.weight;
  float* __restrict d_bias = gradients.bias;
  float* __restrict dx = gradients.x;
  for (int64_t r = 0; r < rows; ++r, x += cols, d_out += cols, dx += cols) {
    const float mean = statistics.mean[r];
    const float inverse = statistics.inverse_deviation[r];
    float sum = 0;            // Of dL/dnormalised.
    float sum_projected = 0;  // Of dL/dnormalised * normalised.
#pragma omp simd reduction(+ : sum, sum_projected)
    for (int64_t c = 0; c < cols; ++c) {
      const float normalised = (x[c] - mean) * inverse;
      const float d = d_out[c] * weight[c];
      sum += d;
      sum_projected += d * normalised;
    }
    const float d_mean = sum * inverse_cols;
    const float d_projected = sum_projected * inverse_cols;
    for (int64_t c = 0; c < cols; ++c) {
      const float normalised = (x[c] - mean) * inverse;
      d_bias[c] += d_out[c];
      d_weight[c] += d_out[c] * normalised;
      dx[c] +=
          inverse * (d_out[c] * weight[c] - d_mean - normalised * d_projected);
    }
  }
}

COMMSCHED_SIMD void CausalSoftmax(const CausalRows& shape, float scale,
                                  float* __restrict scores) {
  const int64_t keys = shape.keys();
  for (int64_t r = 0; r < shape.rows; ++r, scores += shape.stride) {
    const int64_t seen = shape.first_query + r + 1;
    float largest = scores[0];
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < seen; ++k) {
      largest = scores[k] > largest ? scores[k] : largest;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < seen; ++k) {
      const float e = VectorExp(scale * (scores[k] - largest));
      scores[k] = e;
      sum += e;
    }
    const float inverse = 1.0f / sum;
    for (int64_t k = 0; k < seen; ++k) scores[k] *= inverse;
    std::fill(scores + seen, scores + keys, 0.0f);
  }
}

COMMSCHED_SIMD void CausalSoftmaxBackward(const CausalRows& shape,
                                          const float* __restrict probabilities,
                                          float scale, int64_t d_stride,
                                          float* __restrict d) {
  const int64_t keys = shape.keys();
  for (int64_t r = 0; r < shape.rows;
       ++r, probabilities += shape.stride, d += d_stride) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t k = 0; k < keys; ++k) dot += probabilities[k] * d[k];
    for (int64_t k = 0; k < keys; ++k) {
      d[k] = scale * probabilities[k] * (d[k] - dot);
    }
  }
}

COMMSCHED_SIMD double CrossEntropy(const float* __restrict logits,
                                   const uint8_t* __restrict targets,
                                   int64_t rows, int64_t vocab,
                                   float* __restrict log_sums) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r, logits += vocab) {
    float largest = logits[0];
#pragma omp simd reduction(max : largest)
    for (int64_t v = 0; v < vocab; ++v) {
      largest = logits[v] > largest ? logits[v] : largest;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < vocab; ++v) sum += VectorExp(logits[v] - largest);
    log_sums[r] = largest + std::log(sum);
    loss += static_cast<double>(log_sums[r]) - logits[targets[r]];
  }
  return loss;
}

COMMSCHED_SIMD void CrossEntropyBackward(const float* __restrict logits,
                                         const uint8_t* __restrict targets,
                                         const float* __restrict log_sums,
                                         int64_t rows, int64_t vocab,
                                         float scale, float* __restrict d) {
  for (int64_t r = 0; r < rows; ++r, logits += vocab, d += vocab) {
    for (int64_t v = 0; v < vocab; ++v) {
      d[v] = scale * VectorExp(logits[v] - log_sums[r]);
    }
    d[targets[r]] -= scale;
  }
}

}  // namespace commsched::trainer

// The kernels of these checks: for each its arguments, how many indices it has,
// and what it does for one of them. Compiled for CUDA (kernels.cu), and by the
// host's compiler for what they are compared with and for the stand-ins.
#ifndef COMMSCHED_TEST_GPU_CHECK_BODIES_H_
#define COMMSCHED_TEST_GPU_CHECK_BODIES_H_

#include <cstdint>

#include "commsched/types.h"
#include "kernels/bodies.h"

namespace commsched::gpu_check {

// product = left * right, of n x n matrices, `times` over: keeps a device busy.
struct MultiplyArgs {
  const float* left;
  const float* right;
  float* product;
  uint32_t n, times;
};

struct Multiply {
  using Args = MultiplyArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) {
    return uint64_t{a.n} * a.n;
  }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    const uint64_t row = i / a.n;
    const uint64_t column = i % a.n;
    float sum = 0;
    for (uint32_t t = 0; t < a.times; ++t) {
      for (uint64_t k = 0; k < a.n; ++k) {
        sum += a.left[row * a.n + k] * a.right[k * a.n + column];
      }
    }
    a.product[i] = sum;
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.left), map(a.right), map(a.product);
  }
};

// Uniform in [-1, 1), from a mixed hash.
COMMSCHED_ELEMENT float Noise(uint64_t where, uint64_t index) {
  uint64_t z = where * 0x9E3779B97F4A7C15u + index;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
}

// The backward of a model without a forward: what it adds to a gradient is a
// function of the parameter's value and of `where`, which tells rank, step,
// micro-batch and parameter.
struct AddGradientArgs {
  const void* values;
  void* gradients;
  const double* loss_scale;
  uint64_t where, count;
  commsched_dtype_t dtype;
};

struct AddGradient {
  using Args = AddGradientArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    const float value = kernels::Load(a.values, a.dtype, i);
    const float gradient = 0.05f * value + 0.1f * Noise(a.where, i);
    const float scaled = static_cast<float>(*a.loss_scale) * gradient;
    kernels::Store(a.gradients, a.dtype, i,
                   kernels::Load(a.gradients, a.dtype, i) + scaled);
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.values), map(a.gradients), map(a.loss_scale);
  }
};

// The model's forward leaves a checksum of a parameter, and its backward, with
// `num_differ`, counts those that have become another: the values that a
// backward reads must be those of its forward. Two sums that are NaN are equal.
struct ChecksumArgs {
  const void* values;
  double* sum;
  uint64_t* num_differ;  // Null: the forward.
  uint64_t count;
  commsched_dtype_t dtype;
};

struct Checksum {
  using Args = ChecksumArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args&) { return 1; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t) {
    double sum = 0;
    for (uint64_t i = 0; i < a.count; ++i) {
      sum = 0.9 * sum + kernels::Load(a.values, a.dtype, i);
    }
    if (a.num_differ == nullptr) {
      *a.sum = sum;
    } else if (*a.sum != sum && (*a.sum == *a.sum || sum == sum)) {
      ++*a.num_differ;
    }
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.values), map(a.sum), map(a.num_differ);
  }
};

// X(name in the fat binary, kernel).
#define COMMSCHED_GPU_CHECK_KERNELS(X)         \
  X(commsched_check_multiply, Multiply)        \
  X(commsched_check_add_gradient, AddGradient) \
  X(commsched_check_checksum, Checksum)

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_BODIES_H_

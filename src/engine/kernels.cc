#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "layout.h"

namespace commsched::engine {
namespace {

// Decoupled weight decay, then the step, as in PyTorch's AdamW. Elementwise
// with correctly rounded operations only, so that a vector lane and the scalar
// remainder give the same bits.
void AdamW(void*, const commsched_adamw_args_t* args) {
  const commsched_adamw_args_t a = *args;
  float* __restrict master = a.master;
  float* __restrict m = a.m;
  float* __restrict v = a.v;
  const float* __restrict gradient = a.gradient;
  const float keep = 1.0f - a.lr * a.decay;
  const float other1 = 1.0f - a.beta1;
  const float other2 = 1.0f - a.beta2;
  for (uint64_t i = 0; i < a.count; ++i) {
    const float g = gradient[i] * a.gradient_scale;
    m[i] = a.beta1 * m[i] + other1 * g;
    v[i] = a.beta2 * v[i] + other2 * (g * g);
    const float direction =
        (m[i] / a.correction1) / (std::sqrt(v[i] / a.correction2) + a.epsilon);
    master[i] = keep * master[i] - a.lr * direction;
  }
}

template <bool kMomentum, bool kNesterov>
void SgdLoop(const commsched_sgd_args_t& a) {
  float* __restrict master = a.master;
  float* __restrict velocity = a.velocity;
  const float* __restrict gradient = a.gradient;
  for (uint64_t i = 0; i < a.count; ++i) {
    float g = gradient[i] * a.gradient_scale + a.decay * master[i];
    if constexpr (kMomentum) {
      velocity[i] = a.momentum * velocity[i] + g;
      g = kNesterov ? g + a.momentum * velocity[i] : velocity[i];
    }
    master[i] -= a.lr * g;
  }
}

void Sgd(void*, const commsched_sgd_args_t* args) {
  if (args->velocity == nullptr) return SgdLoop<false, false>(*args);
  if (args->nesterov != 0) return SgdLoop<true, true>(*args);
  SgdLoop<true, false>(*args);
}

// Eight partial sums, added pairwise: a fixed order that vectorises.
double BlockSquares(const float* values, uint64_t count) {
  double partial[8] = {};
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (uint64_t j = 0; j < 8; ++j) {
      const double x = values[i + j];
      partial[j] += x * x;
    }
  }
  for (uint64_t j = 0; i + j < count; ++j) {
    const double x = values[i + j];
    partial[j] += x * x;
  }
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

void AllBlockSquares(void*, const float* values, uint64_t count,
                     double* out_sums) {
  for (uint64_t begin = 0; begin < count; begin += kBlockElements) {
    *out_sums++ =
        BlockSquares(values + begin, std::min(kBlockElements, count - begin));
  }
}

void Add(void*, float* into, const float* values, uint64_t count) {
  float* __restrict sum = into;
  const float* __restrict more = values;
  for (uint64_t i = 0; i < count; ++i) sum[i] += more[i];
}

void Zero(void*, float* values, uint64_t count) {
  std::memset(values, 0, count * sizeof(float));
}

}  // namespace

commsched_engine_kernels_t CpuKernels() {
  commsched_engine_kernels_t kernels = {};
  kernels.struct_size = sizeof(kernels);
  kernels.adamw = AdamW;
  kernels.block_squares = AllBlockSquares;
  kernels.zero = Zero;
  kernels.add = Add;
  kernels.sgd = Sgd;
  return kernels;
}

commsched_engine_kernels_t CompleteKernels(
    const commsched_engine_kernels_t* table) {
  commsched_engine_kernels_t kernels = CpuKernels();
  if (table == nullptr) return kernels;
  kernels.user = table->user;
  if (table->adamw != nullptr) kernels.adamw = table->adamw;
  if (table->block_squares != nullptr) {
    kernels.block_squares = table->block_squares;
  }
  if (table->zero != nullptr) kernels.zero = table->zero;
  if (table->add != nullptr) kernels.add = table->add;
  if (table->sgd != nullptr) kernels.sgd = table->sgd;
  return kernels;
}

}  // namespace commsched::engine

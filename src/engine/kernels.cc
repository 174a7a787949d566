#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "float16.h"
#include "layout.h"

namespace commsched::engine {
namespace {

// At a time where elements are converted on the way: what fits into the
// first-level cache, whole blocks.
constexpr uint64_t kChunk = 4 * kBlockElements;

uint64_t SizeOf(commsched_dtype_t dtype) {
  return dtype == COMMSCHED_F32 ? sizeof(float) : sizeof(uint16_t);
}

void* At(void* values, commsched_dtype_t dtype, uint64_t index) {
  return static_cast<unsigned char*>(values) + index * SizeOf(dtype);
}

const void* At(const void* values, commsched_dtype_t dtype, uint64_t index) {
  return static_cast<const unsigned char*>(values) + index * SizeOf(dtype);
}

template <float (*kWiden)(uint16_t)>
void WidenAll(const void* values, uint64_t count, float* __restrict out) {
  const uint16_t* __restrict from = static_cast<const uint16_t*>(values);
  for (uint64_t i = 0; i < count; ++i) out[i] = kWiden(from[i]);
}

template <uint16_t (*kNarrow)(float)>
void NarrowAll(const float* __restrict values, uint64_t count, void* out) {
  uint16_t* __restrict into = static_cast<uint16_t*>(out);
  for (uint64_t i = 0; i < count; ++i) into[i] = kNarrow(values[i]);
}

// The values as fp32: in place, or in `scratch`.
const float* Widened(const void* values, commsched_dtype_t dtype,
                     uint64_t count, float* scratch) {
  if (dtype == COMMSCHED_F32) return static_cast<const float*>(values);
  if (dtype == COMMSCHED_F16) {
    WidenAll<HalfToFloat>(values, count, scratch);
  } else {
    WidenAll<Bfloat16ToFloat>(values, count, scratch);
  }
  return scratch;
}

void Narrow(const float* values, commsched_dtype_t dtype, uint64_t count,
            void* out) {
  if (dtype == COMMSCHED_F32) {
    std::memcpy(out, values, count * sizeof(float));
  } else if (dtype == COMMSCHED_F16) {
    NarrowAll<FloatToHalf>(values, count, out);
  } else {
    NarrowAll<FloatToBfloat16>(values, count, out);
  }
}

// Calls `body` with begin and count of consecutive pieces of `count` elements.
template <typename Body>
void ForEachChunk(uint64_t count, Body&& body) {
  for (uint64_t begin = 0; begin < count; begin += kChunk) {
    body(begin, std::min(kChunk, count - begin));
  }
}

// Decoupled weight decay, then the step, as in PyTorch's AdamW. Elementwise
// with correctly rounded operations only, so that a vector lane and the scalar
// remainder give the same bits.
void StepLoop(const commsched_adamw_args_t& a) {
  float* __restrict master = a.master;
  float* __restrict m = a.m;
  float* __restrict v = a.v;
  const float* __restrict gradient = static_cast<const float*>(a.gradient);
  const auto scale = static_cast<float>(a.control->gradient_scale);
  const auto correction1 = static_cast<float>(a.control->correction1);
  const auto correction2 = static_cast<float>(a.control->correction2);
  const float keep = 1.0f - a.lr * a.decay;
  const float other1 = 1.0f - a.beta1;
  const float other2 = 1.0f - a.beta2;
  for (uint64_t i = 0; i < a.count; ++i) {
    const float g = gradient[i] * scale;
    m[i] = a.beta1 * m[i] + other1 * g;
    v[i] = a.beta2 * v[i] + other2 * (g * g);
    const float direction =
        (m[i] / correction1) / (std::sqrt(v[i] / correction2) + a.epsilon);
    master[i] = keep * master[i] - a.lr * direction;
  }
}

template <bool kMomentum, bool kNesterov>
void SgdLoop(const commsched_sgd_args_t& a) {
  float* __restrict master = a.master;
  float* __restrict velocity = a.velocity;
  const float* __restrict gradient = static_cast<const float*>(a.gradient);
  const auto scale = static_cast<float>(a.control->gradient_scale);
  for (uint64_t i = 0; i < a.count; ++i) {
    float g = gradient[i] * scale + a.decay * master[i];
    if constexpr (kMomentum) {
      velocity[i] = a.momentum * velocity[i] + g;
      g = kNesterov ? g + a.momentum * velocity[i] : velocity[i];
    }
    master[i] -= a.lr * g;
  }
}

void StepLoop(const commsched_sgd_args_t& args) {
  if (args.velocity == nullptr) return SgdLoop<false, false>(args);
  if (args.nesterov != 0) return SgdLoop<true, true>(args);
  SgdLoop<true, false>(args);
}

void Advance(uint64_t begin, commsched_adamw_args_t& args) {
  args.m += begin;
  args.v += begin;
}

void Advance(uint64_t begin, commsched_sgd_args_t& args) {
  if (args.velocity != nullptr) args.velocity += begin;
}

template <typename Args>
void Step(void*, const Args* args) {
  if (args->control->skip != 0) return;
  if (args->gradient_dtype == COMMSCHED_F32 && args->copy == nullptr) {
    return StepLoop(*args);
  }
  float scratch[kChunk];
  ForEachChunk(args->count, [&](uint64_t begin, uint64_t count) {
    Args chunk = *args;
    Advance(begin, chunk);
    chunk.master += begin;
    chunk.count = count;
    chunk.gradient = Widened(At(args->gradient, args->gradient_dtype, begin),
                             args->gradient_dtype, count, scratch);
    StepLoop(chunk);
    if (args->copy == nullptr) return;
    Narrow(chunk.master, args->copy_dtype, count,
           At(args->copy, args->copy_dtype, begin));
  });
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

void AllBlockSquares(void*, const void* values, commsched_dtype_t dtype,
                     uint64_t count, double* out_sums) {
  float scratch[kBlockElements];
  for (uint64_t begin = 0; begin < count; begin += kBlockElements) {
    const uint64_t now = std::min(kBlockElements, count - begin);
    *out_sums++ = BlockSquares(
        Widened(At(values, dtype, begin), dtype, now, scratch), now);
  }
}

void AddLoop(float* __restrict sum, const float* __restrict more,
             uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) sum[i] += more[i];
}

void Add(void*, void* into, commsched_dtype_t into_dtype, const void* values,
         commsched_dtype_t dtype, uint64_t count) {
  float more_scratch[kChunk];
  float scratch[kChunk];
  ForEachChunk(count, [&](uint64_t begin, uint64_t now) {
    const float* more =
        Widened(At(values, dtype, begin), dtype, now, more_scratch);
    void* sum = At(into, into_dtype, begin);
    if (into_dtype == COMMSCHED_F32) {
      return AddLoop(static_cast<float*>(sum), more, now);
    }
    Widened(sum, into_dtype, now, scratch);
    AddLoop(scratch, more, now);
    Narrow(scratch, into_dtype, now, sum);
  });
}

void Convert(void*, void* into, commsched_dtype_t into_dtype,
             const void* values, commsched_dtype_t dtype, uint64_t count) {
  if (into_dtype == dtype) {
    std::memcpy(into, values, count * SizeOf(dtype));
    return;
  }
  float scratch[kChunk];
  ForEachChunk(count, [&](uint64_t begin, uint64_t now) {
    Narrow(Widened(At(values, dtype, begin), dtype, now, scratch), into_dtype,
           now, At(into, into_dtype, begin));
  });
}

void Zero(void*, void* memory, uint64_t bytes) {
  std::memset(memory, 0, bytes);
}

}  // namespace

commsched_engine_kernels_t CpuKernels() {
  commsched_engine_kernels_t kernels = {};
  kernels.struct_size = sizeof(kernels);
  kernels.adamw = Step<commsched_adamw_args_t>;
  kernels.block_squares = AllBlockSquares;
  kernels.zero = Zero;
  kernels.add = Add;
  kernels.sgd = Step<commsched_sgd_args_t>;
  kernels.convert = Convert;
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
  if (table->convert != nullptr) kernels.convert = table->convert;
  return kernels;
}

}  // namespace commsched::engine

#include "engine/tables/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/bodies.h"

namespace commsched::engine {
namespace {

using kernels::kBlockElements;

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

void StepLoop(const commsched_adamw_args_t& a) {
  float* __restrict master = a.master;
  float* __restrict m = a.m;
  float* __restrict v = a.v;
  const float* __restrict gradient = static_cast<const float*>(a.gradient);
  const kernels::AdamwStep step(a);
  for (uint64_t i = 0; i < a.count; ++i) {
    step.Apply(gradient[i], m[i], v[i], master[i]);
  }
}

template <bool kMomentum, bool kNesterov>
void SgdLoop(const commsched_sgd_args_t& a) {
  float* __restrict master = a.master;
  float* __restrict velocity = a.velocity;
  const float* __restrict gradient = static_cast<const float*>(a.gradient);
  const auto scale = static_cast<float>(a.control->gradient_scale);
  for (uint64_t i = 0; i < a.count; ++i) {
    float g = kernels::SgdGradient(gradient[i], scale, a.decay, master[i]);
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
commsched_status_t Step(void*, commsched_stream_t, const Args* args) {
  if (args->control->skip != 0) return COMMSCHED_OK;
  if (args->gradient_dtype == COMMSCHED_F32 && args->copy == nullptr) {
    StepLoop(*args);
    return COMMSCHED_OK;
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
  return COMMSCHED_OK;
}

commsched_status_t AllBlockSquares(void*, commsched_stream_t,
                                   const void* values, commsched_dtype_t dtype,
                                   uint64_t count, double* out_sums) {
  float scratch[kBlockElements];
  for (uint64_t begin = 0; begin < count; begin += kBlockElements) {
    const uint64_t now = std::min(kBlockElements, count - begin);
    const float* const block =
        Widened(At(values, dtype, begin), dtype, now, scratch);
    *out_sums++ =
        kernels::SquaresOfBlock(now, [&](uint64_t i) { return block[i]; });
  }
  return COMMSCHED_OK;
}

void AddLoop(float* __restrict sum, const float* __restrict more,
             uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) sum[i] += more[i];
}

commsched_status_t Add(void*, commsched_stream_t, void* into,
                       commsched_dtype_t into_dtype, const void* values,
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
  return COMMSCHED_OK;
}

commsched_status_t Convert(void*, commsched_stream_t, void* into,
                           commsched_dtype_t into_dtype, const void* values,
                           commsched_dtype_t dtype, uint64_t count) {
  if (count == 0) return COMMSCHED_OK;  // Of nothing there is no address.
  if (into_dtype == dtype) {
    std::memcpy(into, values, count * SizeOf(dtype));
    return COMMSCHED_OK;
  }
  float scratch[kChunk];
  ForEachChunk(count, [&](uint64_t begin, uint64_t now) {
    Narrow(Widened(At(values, dtype, begin), dtype, now, scratch), into_dtype,
           now, At(into, into_dtype, begin));
  });
  return COMMSCHED_OK;
}

commsched_status_t Zero(void*, commsched_stream_t, void* memory,
                        uint64_t bytes) {
  if (bytes > 0) std::memset(memory, 0, bytes);
  return COMMSCHED_OK;
}

commsched_status_t SumRuns(void*, commsched_stream_t,
                           const commsched_sum_runs_args_t* args) {
  for (uint64_t i = 0; i < args->count; ++i) {
    args->out[i] = kernels::SumOfRuns(*args, i);
  }
  return COMMSCHED_OK;
}

commsched_status_t Decide(void*, commsched_stream_t,
                          const commsched_decide_args_t* args) {
  kernels::Decide(*args);
  return COMMSCHED_OK;
}

commsched_status_t Fill(void*, commsched_stream_t, double* values, double value,
                        uint64_t count) {
  std::fill_n(values, count, value);
  return COMMSCHED_OK;
}

commsched_status_t Copy(void*, commsched_stream_t, void* into, const void* from,
                        uint64_t bytes) {
  if (bytes > 0) std::memcpy(into, from, bytes);
  return COMMSCHED_OK;
}

commsched_status_t Synchronize(void*, commsched_stream_t) {
  return COMMSCHED_OK;
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
  kernels.sum_runs = SumRuns;
  kernels.decide = Decide;
  kernels.fill = Fill;
  kernels.copy = Copy;
  kernels.synchronize = Synchronize;
  return kernels;
}

commsched_engine_memory_t CpuMemory() {
  commsched_engine_memory_t memory = {};
  memory.struct_size = sizeof(memory);
  memory.allocate = [](void*, uint64_t bytes, void** out_address) {
    constexpr uint64_t kAlignment = 256;
    *out_address = nullptr;
    if (bytes <= UINT64_MAX - kAlignment) {
      *out_address = std::aligned_alloc(
          kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    if (*out_address != nullptr) return commsched_status_t{COMMSCHED_OK};
    commsched_set_last_error("out of memory");
    return commsched_status_t{COMMSCHED_RESOURCE_EXHAUSTED};
  };
  memory.release = [](void*, void* address, uint64_t) { std::free(address); };
  memory.allocate_host = memory.allocate;
  memory.release_host = memory.release;
  return memory;
}

}  // namespace commsched::engine

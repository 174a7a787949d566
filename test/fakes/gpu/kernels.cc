// Stand-in of what loads and launches kernels: those of src/kernels, compiled
// for the host.
#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "capture.h"
#include "fake_gpu.h"
#include "kernels/bodies.h"
#include "state.h"

namespace fake_gpu {
namespace {

namespace kernels = commsched::kernels;

// Bytes of elements of the types that the engine computes with.
size_t BytesOf(uint64_t count, commsched_dtype_t dtype) {
  return count * (dtype == COMMSCHED_F32 ? 4 : 2);
}

size_t BytesOfAny(uint64_t count, commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return count;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return count * 2;
    case COMMSCHED_F32:
    case COMMSCHED_I32:
      return count * 4;
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return count * 8;
  }
  return 0;
}

// ---- What each kernel reads and writes, in the order of bodies.h

using Ranges = std::vector<Range>;

template <typename T>
void Updates(Ranges* ranges, T* values, uint64_t count) {
  if (values == nullptr) return;
  ranges->push_back(Reads(values, count * sizeof(T)));
  ranges->push_back(Writes(values, count * sizeof(T)));
}

template <typename Args>
void DeclareUpdate(const Args& a, Ranges* ranges) {
  Updates(ranges, a.master, a.count);
  ranges->push_back(Reads(a.gradient, BytesOf(a.count, a.gradient_dtype)));
  ranges->push_back(Reads(a.control, sizeof(*a.control)));
  if (a.copy == nullptr) return;
  ranges->push_back(Writes(a.copy, BytesOf(a.count, a.copy_dtype)));
}

void Declare(const kernels::Adamw::Args& a, Ranges* ranges) {
  DeclareUpdate(a, ranges);
  Updates(ranges, a.m, a.count);
  Updates(ranges, a.v, a.count);
}

void Declare(const kernels::Sgd::Args& a, Ranges* ranges) {
  DeclareUpdate(a, ranges);
  Updates(ranges, a.velocity, a.count);
}

void Declare(const kernels::BlockSquaresArgs& a, Ranges* ranges) {
  ranges->push_back(Reads(a.values, BytesOf(a.count, a.dtype)));
  ranges->push_back(Writes(
      a.out_sums, kernels::BlockSquares::Count(a) * sizeof(*a.out_sums)));
}

// Of Add and Convert; that Convert does not read `into` finds no race less,
// since it writes there.
void Declare(const kernels::CombineArgs& a, Ranges* ranges) {
  ranges->push_back(Reads(a.values, BytesOf(a.count, a.dtype)));
  ranges->push_back(Writes(a.into, BytesOf(a.count, a.into_dtype)));
}

// Which values are read is said by device memory. It is written when an engine
// is made, and the engine waits for that.
void Declare(const commsched_sum_runs_args_t& a, Ranges* ranges) {
  const auto* const first = static_cast<const uint64_t*>(Twin(a.first_run));
  const auto* const runs = static_cast<const commsched_run_t*>(Twin(a.runs));
  ranges->push_back(Reads(a.first_run, (a.count + 1) * sizeof(*a.first_run)));
  ranges->push_back(Reads(a.runs, first[a.count] * sizeof(*a.runs)));
  for (uint64_t i = 0; i < first[a.count]; ++i) {
    ranges->push_back(
        Reads(a.values + runs[i].begin, runs[i].count * sizeof(*a.values)));
  }
  ranges->push_back(Writes(a.out, a.count * sizeof(*a.out)));
}

void Declare(const commsched_decide_args_t& a, Ranges* ranges) {
  Updates(ranges, a.state, 1);
  if (a.sums == nullptr) return;
  ranges->push_back(Reads(a.sums, a.count * sizeof(*a.sums)));
}

void Declare(const kernels::FillArgs& a, Ranges* ranges) {
  ranges->push_back(Writes(a.values, a.count * sizeof(*a.values)));
}

void Declare(const kernels::ReduceRanksArgs& a, Ranges* ranges) {
  for (uint32_t r = 0; r < a.num_inputs; ++r) {
    const char* const input =
        static_cast<const char*>(a.inputs) + BytesOfAny(r * a.stride, a.dtype);
    ranges->push_back(Reads(input, BytesOfAny(a.count, a.dtype)));
  }
  ranges->push_back(Writes(a.out, BytesOfAny(a.count, a.dtype)));
}

// ---- Kernels of the fat binary

// Takes its arguments, which it finds at `args`, and returns what a stream does
// for them; adds what they say of memory to `ranges`, unless that is null.
struct KernelTwin {
  const char* name;
  std::function<void()> (*bind)(const void* args, Ranges* ranges);
};

template <typename Kernel>
std::function<void()> Bind(const void* args, Ranges* ranges) {
  typename Kernel::Args copy;
  std::memcpy(&copy, args, sizeof(copy));
  if (ranges != nullptr) Declare(copy, ranges);
  Kernel::MapPointers(copy, [](auto*& pointer) {
    pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(
        Twin(static_cast<const void*>(pointer)));
  });
  return [copy] {
    const uint64_t count = Kernel::Count(copy);
    for (uint64_t i = 0; i < count; ++i) Kernel::Run(copy, i);
  };
}

constexpr KernelTwin kTwins[] = {
#define FAKE_TWIN(name, kernel) {#name, Bind<kernels::kernel>},
    COMMSCHED_DEVICE_KERNELS(FAKE_TWIN)
#undef FAKE_TWIN
};

// Of the struct that wraps what nvcc writes with -fatbin.
constexpr unsigned char kFatbinMagic[] = {0x50, 0xED, 0x55, 0xBA};

bool IsTwin(const void* function) {
  for (const KernelTwin& twin : kTwins) {
    if (&twin == function) return true;
  }
  return false;
}

}  // namespace
}  // namespace fake_gpu

// "The code may be a cubin or fatbin as output by nvcc, or a NULL-terminated
// PTX" (cudaLibraryLoadData).
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code,
                                cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  FAKE_ENTER();
  if (std::memcmp(code, fake_gpu::kFatbinMagic, 4) != 0) {
    return fake_gpu::Failed(cudaErrorInvalidKernelImage);
  }
  *library =
      reinterpret_cast<cudaLibrary_t>(const_cast<void*>(code));  // Not null.
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t,
                                 const char* name) {
  FAKE_ENTER();
  for (const fake_gpu::KernelTwin& twin : fake_gpu::kTwins) {
    if (std::strcmp(twin.name, name) != 0) continue;
    *kernel = reinterpret_cast<cudaKernel_t>(
        const_cast<fake_gpu::KernelTwin*>(&twin));
    return cudaSuccess;
  }
  return fake_gpu::Failed(cudaErrorSymbolNotFound);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  const void* function) {
  FAKE_ENTER();
  if (!fake_gpu::IsTwin(function))
    return fake_gpu::Failed(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

// A launch of no blocks, no threads or "too many threads"
// (cudaErrorInvalidConfiguration) fails, with what CUDA 13.0 says, and one on a
// stream of another device than the current one (CUDA C++ Programming Guide,
// Stream and Event Behavior). The arguments are copied by the call: args[i] are
// where "the actual parameter will be copied" from (cudaLaunchKernel).
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                             void** args, size_t, cudaStream_t stream) {
  FAKE_ENTER();
  if (fake_gpu::is_null.load(std::memory_order_relaxed)) return cudaSuccess;
  if (!fake_gpu::IsTwin(function))
    return fake_gpu::Failed(cudaErrorInvalidDeviceFunction);
  if (grid.x == 0 || block.x == 0 || block.x > 1024) {
    return fake_gpu::Failed(cudaErrorInvalidValue);
  }
  fake_gpu::Stream* const on = fake_gpu::StreamOf(stream);
  if (on->device() != fake_gpu::CurrentDevice()) {
    return fake_gpu::Failed(cudaErrorInvalidResourceHandle);
  }
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  const auto* const twin = static_cast<const fake_gpu::KernelTwin*>(function);
  std::vector<fake_gpu::Range> ranges;
  auto run =
      twin->bind(args[0], fake_gpu::AllClocks().on() ? &ranges : nullptr);
  on->Enqueue(twin->name, ranges, {std::move(run), nullptr});
  return cudaSuccess;
}

// Stand-in of what loads and launches kernels: those of src/kernels, compiled
// for the host.
#include <cuda.h>

#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "capture.h"
#include "fake_gpu.h"
#include "image.h"
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
    for (uint64_t i = 0; i < count; ++i) kernels::RunOnHost<Kernel>(copy, i);
  };
}

constexpr KernelTwin kTwins[] = {
#define FAKE_TWIN(name, kernel) {#name, Bind<kernels::kernel>},
    COMMSCHED_DEVICE_KERNELS(FAKE_TWIN)
#undef FAKE_TWIN
};

bool IsTwin(const void* function) {
  for (const KernelTwin& twin : kTwins) {
    if (&twin == function) return true;
  }
  return false;
}

}  // namespace
}  // namespace fake_gpu

// What has been loaded, and a kernel of it. They stay until the process ends.
struct CUlib_st {
  fake_gpu::ImageKind kind;
};
struct CUkern_st {
  CUlib_st* library;
  const void* twin;
};

namespace fake_gpu {
namespace {

template <typename T>
T* Keep(T value) {
  static std::mutex mu;
  static auto* const all = new std::deque<T>;
  const std::lock_guard<std::mutex> lock(mu);
  all->push_back(value);
  return &all->back();
}

int Load(CUlibrary* library, const void* code) {
  const ImageKind kind = KindOf(code);
  if (kind == ImageKind::kUnknown) return CUDA_ERROR_INVALID_IMAGE;
  if (kind == ImageKind::kTooNew) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  *library = Keep(CUlib_st{kind});
  return CUDA_SUCCESS;
}

int Find(CUkernel* kernel, CUlibrary library, const char* name) {
  for (const KernelTwin& twin : kTwins) {
    if (std::strcmp(twin.name, name) != 0) continue;
    *kernel = Keep(CUkern_st{library, &twin});
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

// On a stream of the current device only (CUDA C++ Programming Guide, Stream
// and Event Behavior).
int Launch(CUfunction function, unsigned blocks, unsigned threads,
           cudaStream_t stream, void** args) {
  if (!IsTwin(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks == 0 || threads == 0 || threads > 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* const on = StreamOf(stream);
  if (on->device() != CurrentDevice()) return CUDA_ERROR_INVALID_HANDLE;
  if (const int code = CheckWork(stream); code != cudaSuccess) return code;
  const auto* const twin = reinterpret_cast<const KernelTwin*>(function);
  std::vector<Range> ranges;
  auto run = twin->bind(args[0], AllClocks().on() ? &ranges : nullptr);
  on->Enqueue(twin->name, ranges, {std::move(run), nullptr});
  return CUDA_SUCCESS;
}

CUresult Answer(int code) { return static_cast<CUresult>(code); }

}  // namespace
}  // namespace fake_gpu

using fake_gpu::Answer;
using fake_gpu::OfDriver;

// "The code may be a cubin or fatbin as output by nvcc, or a NULL-terminated
// PTX" (cuLibraryLoadData); here it is one of the first two. One that has
// nothing for the device loads, as it does on an H200.
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*,
                           void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  return Answer(OfDriver("cuLibraryLoadData",
                         [&] { return fake_gpu::Load(library, code); }));
}

// Which of two calls says that there is nothing for the device is not known: of
// fat binaries this one does here, of cubins the next.
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library,
                            const char* name) {
  return Answer(OfDriver("cuLibraryGetKernel", [&]() -> int {
    if (library->kind == fake_gpu::ImageKind::kFatbinOfOthers) {
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return fake_gpu::Find(kernel, library, name);
  }));
}

// "Returns in pFunc the handle of the function for the requested kernel kernel
// and the current context" (cuKernelGetFunction).
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return Answer(OfDriver("cuKernelGetFunction", [&]() -> int {
    if (!fake_gpu::HasContext()) return CUDA_ERROR_INVALID_CONTEXT;
    if (kernel->library->kind == fake_gpu::ImageKind::kCubinOfOthers) {
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    *function = reinterpret_cast<CUfunction>(const_cast<void*>(kernel->twin));
    return CUDA_SUCCESS;
  }));
}

// The arguments are copied by the call: params[i] are where "the actual kernel
// parameter will be copied" from (cuLaunchKernel).
CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned,
                        unsigned, unsigned threads, unsigned, unsigned,
                        unsigned, CUstream stream, void** params, void**) {
  return Answer(OfDriver("cuLaunchKernel", [&]() -> int {
    if (fake_gpu::is_null.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
    if (!fake_gpu::HasContext()) return CUDA_ERROR_INVALID_CONTEXT;
    return fake_gpu::Launch(function, blocks, threads, stream, params);
  }));
}

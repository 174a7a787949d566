// What of the CUDA runtime kernels need, as a table of functions: the library
// is found when a program runs.
#ifndef COMMSCHED_SRC_KERNELS_CUDA_API_H_
#define COMMSCHED_SRC_KERNELS_CUDA_API_H_

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda_driver.h"

namespace commsched::kernels {

// X(name, type): cuda<name>. Types are written out: in C++ some names have
// templates besides.
#define COMMSCHED_KERNELS_CUDA_FUNCTIONS(X)                                \
  X(GetErrorString, const char*(cudaError_t))                              \
  X(GetDevice, cudaError_t(int*))                                          \
  X(SetDevice, cudaError_t(int))                                           \
  X(StreamCreateWithPriority, cudaError_t(cudaStream_t*, unsigned, int))   \
  X(StreamDestroy, cudaError_t(cudaStream_t))                              \
  X(StreamSynchronize, cudaError_t(cudaStream_t))                          \
  X(MemcpyAsync,                                                           \
    cudaError_t(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t)) \
  X(MemsetAsync, cudaError_t(void*, int, size_t, cudaStream_t))

// Constant after Load().
struct CudaApi {
#define COMMSCHED_KERNELS_MEMBER(name, type) \
  using name##Type = type;                   \
  decltype(static_cast<name##Type*>(&::cuda##name)) name = nullptr;
  COMMSCHED_KERNELS_CUDA_FUNCTIONS(COMMSCHED_KERNELS_MEMBER)
#undef COMMSCHED_KERNELS_MEMBER

  // Its functions may be called where `driver_missing` is empty, as it is where
  // there is a device. Kernels are its business, since the runtime of a process
  // may not load them (cudaLibraryLoadData is of CUDA 12.8); and memory, since
  // the runtime leaves the caller's thread a last error where there is none.
  CudaDriver driver;
  std::string driver_missing;

  // "", or why there is no such library (kernels/cuda_library.h says where it
  // is looked for).
  std::string Load();

  // "", or `call` with the vendor's words.
  std::string Check(const char* call, cudaError_t code) const;
  std::string Check(const char* call, CUresult code) const;
};

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_CUDA_API_H_

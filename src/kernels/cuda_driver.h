#ifndef COMMSCHED_SRC_KERNELS_CUDA_DRIVER_H_
#define COMMSCHED_SRC_KERNELS_CUDA_DRIVER_H_

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>

#include "kernels/cuda_library.h"

namespace commsched::kernels {

// X(name, symbol, type): what is called of the driver. Its functions keep their
// types as long as their symbols, "a per-function ABI denoted with a _v*
// extension" (Driver API, Rules for version mixing), whereas those of the
// runtime change with each major version; and they leave the runtime's last
// error of the thread, which is its caller's.
#define COMMSCHED_CUDA_DRIVER_FUNCTIONS(X)                                   \
  X(CtxGetCurrent, cuCtxGetCurrent, CUresult(CUcontext*))                    \
  X(DeviceGet, cuDeviceGet, CUresult(CUdevice*, int))                        \
  X(DeviceGetAttribute, cuDeviceGetAttribute,                                \
    CUresult(int*, CUdevice_attribute, CUdevice))                            \
  X(EventQuery, cuEventQuery, CUresult(CUevent))                             \
  X(GetErrorString, cuGetErrorString, CUresult(CUresult, const char**))      \
  X(KernelGetFunction, cuKernelGetFunction, CUresult(CUfunction*, CUkernel)) \
  X(LaunchKernel, cuLaunchKernel,                                            \
    CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,   \
             unsigned, unsigned, CUstream, void**, void**))                  \
  X(LibraryGetKernel, cuLibraryGetKernel,                                    \
    CUresult(CUkernel*, CUlibrary, const char*))                             \
  X(LibraryLoadData, cuLibraryLoadData,                                      \
    CUresult(CUlibrary*, const void*, CUjit_option*, void**, unsigned,       \
             CUlibraryOption*, void**, unsigned))                            \
  X(MemAlloc, cuMemAlloc_v2, CUresult(CUdeviceptr*, size_t))                 \
  X(MemFree, cuMemFree_v2, CUresult(CUdeviceptr))                            \
  X(MemFreeHost, cuMemFreeHost, CUresult(void*))                             \
  X(MemHostAlloc, cuMemHostAlloc, CUresult(void**, size_t, unsigned))        \
  X(MemsetD32Async, cuMemsetD32Async,                                        \
    CUresult(CUdeviceptr, unsigned, size_t, CUstream))                       \
  X(PointerGetAttributes, cuPointerGetAttributes,                            \
    CUresult(unsigned, CUpointer_attribute*, void**, CUdeviceptr))           \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                         \
    CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,        \
             const CUgraphNode**, size_t*))

// The driver that a CUDA runtime works with, as a table of functions.
//
// Constant after Load(): thread-safe.
struct CudaDriver {
#define COMMSCHED_CUDA_DRIVER_MEMBER(name, symbol, type) \
  using name##Type = type;                               \
  name##Type* name = nullptr;
  COMMSCHED_CUDA_DRIVER_FUNCTIONS(COMMSCHED_CUDA_DRIVER_MEMBER)
#undef COMMSCHED_CUDA_DRIVER_MEMBER

  int version = 0;  // Of CUDA: 13000 for 13.0.

  // "", or why not. `runtime` is an open library of the runtime
  // (cuda_library.h).
  std::string Load(void* runtime);

  // Returns what `call` does, a CUresult. A thread that the runtime has not
  // been used on has no context, which the driver misses: then it gets that of
  // its current device, and `call` is made again.
  template <typename Call>
  CUresult InContext(const Call& call) const {
    const CUresult code = call();
    if (code != CUDA_ERROR_INVALID_CONTEXT || !Bind()) return code;
    return call();
  }

  // Memory of the current device, and pinned memory of the host.
  CUresult Allocate(size_t bytes, void** out_address) const {
    CUdeviceptr address = 0;
    const CUresult code =
        InContext([&] { return MemAlloc(&address, bytes == 0 ? 1 : bytes); });
    if (code == CUDA_SUCCESS) *out_address = reinterpret_cast<void*>(address);
    return code;
  }
  CUresult Free(void* address) const {
    if (address == nullptr) return CUDA_SUCCESS;
    return InContext(
        [&] { return MemFree(reinterpret_cast<CUdeviceptr>(address)); });
  }
  CUresult AllocateHost(size_t bytes, void** out_address) const {
    return InContext([&] {
      return MemHostAlloc(out_address, bytes, CU_MEMHOSTALLOC_PORTABLE);
    });
  }
  CUresult FreeHost(void* address) const {
    if (address == nullptr) return CUDA_SUCCESS;
    return InContext([&] { return MemFreeHost(address); });
  }

  // Of a device, by its ordinal.
  CUresult NumMultiprocessors(int ordinal, int* out_number) const {
    CUdevice device = 0;
    const CUresult code = DeviceGet(&device, ordinal);
    if (code != CUDA_SUCCESS) return code;
    return DeviceGetAttribute(out_number,
                              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  }

  // The driver's words for `code`.
  std::string TextOf(CUresult code) const {
    const char* text = nullptr;
    if (GetErrorString(code, &text) != CUDA_SUCCESS || text == nullptr) {
      return "unknown error";
    }
    return text;
  }

 private:
  // "This call will bind the primary context of the specified device to the
  // calling thread" (cudaSetDevice).
  bool Bind() const {
    int device = 0;
    return get_device_(&device) == cudaSuccess &&
           set_device_(device) == cudaSuccess;
  }

  decltype(&::cudaGetDevice) get_device_ = nullptr;
  decltype(&::cudaSetDevice) set_device_ = nullptr;
};

// Once it has been asked for anything, the runtime has opened its driver; a
// stand-in of the runtime is one of the driver, too.
inline void* DriverOf(void* runtime) {
  if (dlsym(runtime, "cuEventQuery") != nullptr) return runtime;
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

inline std::string CudaDriver::Load(void* runtime) {
  void* const driver = DriverOf(runtime);
  if (driver == nullptr) return dlerror();
  const auto get_version = reinterpret_cast<decltype(&::cuDriverGetVersion)>(
      dlsym(driver, "cuDriverGetVersion"));
  if (get_version == nullptr || get_version(&version) != CUDA_SUCCESS) {
    return "it does not say its version";
  }
#define COMMSCHED_CUDA_DRIVER_LOAD(name, symbol, type)                   \
  name = reinterpret_cast<name##Type*>(dlsym(driver, #symbol));          \
  if (name == nullptr) {                                                 \
    return "that of CUDA " + CudaVersionText(version) +                  \
           " has no " #symbol "; CUDA 12.0 is the oldest that is taken"; \
  }
  COMMSCHED_CUDA_DRIVER_FUNCTIONS(COMMSCHED_CUDA_DRIVER_LOAD)
#undef COMMSCHED_CUDA_DRIVER_LOAD
  get_device_ =
      reinterpret_cast<decltype(get_device_)>(dlsym(runtime, "cudaGetDevice"));
  set_device_ =
      reinterpret_cast<decltype(set_device_)>(dlsym(runtime, "cudaSetDevice"));
  if (get_device_ != nullptr && set_device_ != nullptr) return "";
  return "the CUDA runtime has no cudaGetDevice or no cudaSetDevice";
}

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_CUDA_DRIVER_H_

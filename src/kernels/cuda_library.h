#ifndef COMMSCHED_SRC_KERNELS_CUDA_LIBRARY_H_
#define COMMSCHED_SRC_KERNELS_CUDA_LIBRARY_H_

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/open_library.h"

namespace commsched::kernels {

// The oldest whose functions are called as they were then.
inline constexpr int kLeastCudaRuntime = 12000;

// "13.0", of 13000.
inline std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

// "", or why a runtime of `version` in `file` is not called. "CUDA-defined
// types, whether opaque handles or structures like cudaDeviceProp, have their
// ABI tied to the major release of the CUDA runtime" (Driver API, Rules for
// version mixing): of a newer one the headers do not know what it writes, and
// through which arguments. What is called of the one before is as it was.
inline std::string RefusalOfRuntime(int version, const std::string& file) {
  const std::string found =
      "the CUDA runtime in " + file + " is of CUDA " + CudaVersionText(version);
  if (version / 1000 > CUDART_VERSION / 1000) {
    return found +
           ", a newer major version than that of the headers which commsched "
           "was compiled with, " +
           CudaVersionText(CUDART_VERSION) +
           "; let COMMSCHED_CUDART_LIB name an older one";
  }
  if (version >= kLeastCudaRuntime) return "";
  return found + ", and " + CudaVersionText(kLeastCudaRuntime) +
         " is the oldest that is taken";
}

// "", or why there is no CUDA runtime that can be called; open_library.h says
// where it is looked for. It stays open.
inline std::string OpenCudaRuntime(void** out_handle) {
  void* handle = nullptr;
#if CUDART_VERSION >= 13000
  std::string why = OpenLibrary(
      {"COMMSCHED_CUDART_LIB",
       {"libcudart.so.13", "libcudart.so.12", "libcudart.so"},
       {"cu13/lib/libcudart.so.13", "cuda_runtime/lib/libcudart.so.12"}},
      &handle);
#else
  std::string why = OpenLibrary({"COMMSCHED_CUDART_LIB",
                                 {"libcudart.so.12", "libcudart.so"},
                                 {"cuda_runtime/lib/libcudart.so.12"}},
                                &handle);
#endif
  if (!why.empty()) return why;
  const auto version_of = reinterpret_cast<decltype(&::cudaRuntimeGetVersion)>(
      dlsym(handle, "cudaRuntimeGetVersion"));
  const std::string file = FileOf(reinterpret_cast<const void*>(version_of));
  int version = 0;
  if (version_of == nullptr || version_of(&version) != cudaSuccess) {
    return "a file that was taken for the CUDA runtime does not say its "
           "version";
  }
  why = RefusalOfRuntime(version, file);
  if (why.empty()) *out_handle = handle;
  return why;
}

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_CUDA_LIBRARY_H_

#include "kernels/cuda_api.h"

#include "kernels/cuda_library.h"

namespace commsched::kernels {

std::string CudaApi::Load() {
  void* handle = nullptr;
  std::string why = OpenCudaRuntime(&handle);
  if (!why.empty()) return why;
#define COMMSCHED_KERNELS_LOAD(name, type) \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, "cuda" #name));
  COMMSCHED_KERNELS_CUDA_FUNCTIONS(COMMSCHED_KERNELS_LOAD)
#undef COMMSCHED_KERNELS_LOAD
#define COMMSCHED_KERNELS_REQUIRE(name, type) \
  if (name == nullptr) return "the CUDA runtime has no cuda" #name;
  COMMSCHED_KERNELS_CUDA_FUNCTIONS(COMMSCHED_KERNELS_REQUIRE)
#undef COMMSCHED_KERNELS_REQUIRE
  driver_missing = driver.Load(handle);
  return "";
}

std::string CudaApi::Check(const char* call, cudaError_t code) const {
  if (code == cudaSuccess) return "";
  return std::string(call) + ": " + GetErrorString(code) + " (" +
         std::to_string(static_cast<int>(code)) + ")";
}

std::string CudaApi::Check(const char* call, CUresult code) const {
  if (code == CUDA_SUCCESS) return "";
  return std::string(call) + ": " + driver.TextOf(code) + " (" +
         std::to_string(static_cast<int>(code)) + ")";
}

}  // namespace commsched::kernels

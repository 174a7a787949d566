#include "kernels/cuda_kernels.h"

#include <algorithm>

#include "kernels/device_kernel.h"

// The fat binary that nvcc makes of kernels.cu, as bytes of this library.
asm(R"(
  .section .rodata
  .balign 64
  .hidden commsched_kernels_fatbin
  .global commsched_kernels_fatbin
commsched_kernels_fatbin:
  .incbin ")" COMMSCHED_KERNELS_FATBIN R"("
  .byte 0
  .previous
)");
extern "C" const unsigned char commsched_kernels_fatbin[];

namespace commsched::kernels {
namespace {

// Enough to fill the largest devices several times over.
constexpr uint64_t kMostBlocks = 4096;

}  // namespace

std::string CudaKernels::Load(const CudaApi* api) {
  api_ = api;
  if (api->LibraryLoadData == nullptr || api->LibraryGetKernel == nullptr ||
      api->FuncGetAttributes == nullptr) {
    return "the CUDA runtime has no cudaLibraryLoadData; CUDA 12.8 is the "
           "oldest that kernels can be loaded with";
  }
  cudaLibrary_t library = nullptr;
  std::string why = api->Check(
      "cudaLibraryLoadData",
      api->LibraryLoadData(&library, commsched_kernels_fatbin, nullptr, nullptr,
                           0, nullptr, nullptr, 0));
  const auto get = [&](const char* name, const void** out_function) {
    if (!why.empty()) return;
    cudaKernel_t kernel = nullptr;
    why = api->Check("cudaLibraryGetKernel",
                     api->LibraryGetKernel(&kernel, library, name));
    if (!why.empty()) return;
    cudaFuncAttributes attributes = {};
    why = api->Check("cudaFuncGetAttributes",
                     api->FuncGetAttributes(
                         &attributes, reinterpret_cast<const void*>(kernel)));
    *out_function = reinterpret_cast<const void*>(kernel);
  };
#define COMMSCHED_KERNELS_GET(name, kernel) get(#name, &functions_.name);
  COMMSCHED_DEVICE_KERNELS(COMMSCHED_KERNELS_GET)
#undef COMMSCHED_KERNELS_GET
  return why;
}

std::string CudaKernels::LaunchNamed(const void* function, uint64_t count,
                                     void* args, cudaStream_t stream) const {
  if (count == 0) return "";
  const uint64_t blocks =
      std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  return api_->Check(
      "cudaLaunchKernel",
      api_->LaunchKernel(function, dim3(static_cast<unsigned>(blocks)),
                         dim3(kThreads), &args, /*smem=*/0, stream));
}

}  // namespace commsched::kernels

#include "kernels/cuda_kernels.h"

#include <algorithm>

#include "kernels/device_kernel.h"

namespace commsched::kernels {
namespace {

// Enough to fill the largest devices several times over.
constexpr uint64_t kMostBlocks = 4096;

}  // namespace

std::string CudaKernels::Load(const CudaApi* api,
                              std::span<const KernelImage> images) {
  api_ = api;
  if (!api->driver_missing.empty()) {
    return "no CUDA driver: " + api->driver_missing;
  }
  std::string tried;
  int least_driver = images.empty() ? 0 : images.front().least_driver;
  for (const KernelImage& image : images) {
    const std::string why = LoadImage(image);
    if (why.empty()) {
      image_ = image.name;
      return "";
    }
    least_driver = std::min(least_driver, image.least_driver);
    tried += "; " + std::string(image.name) + ": " + why;
  }
  return "this device and its driver, of CUDA " +
         CudaVersionText(api->driver.version) +
         ", take no image of the kernels; the oldest driver that one is for is "
         "of CUDA " +
         CudaVersionText(least_driver) + tried;
}

// Where it fails, what was loaded stays: to unload it may wait for the device.
std::string CudaKernels::LoadImage(const KernelImage& image) {
  const CudaDriver& driver = api_->driver;
  CUlibrary library = nullptr;
  std::string why = api_->Check("cuLibraryLoadData", driver.InContext([&] {
    return driver.LibraryLoadData(&library, image.code, nullptr, nullptr, 0,
                                  nullptr, nullptr, 0);
  }));
  const auto get = [&](const char* name, CUfunction* out_function) {
    if (!why.empty()) return;
    CUkernel kernel = nullptr;
    why = api_->Check("cuLibraryGetKernel",
                      driver.LibraryGetKernel(&kernel, library, name));
    if (!why.empty()) return;
    why = api_->Check("cuKernelGetFunction", driver.InContext([&] {
      return driver.KernelGetFunction(out_function, kernel);
    }));
  };
#define COMMSCHED_KERNELS_GET(name, kernel) get(#name, &functions_.name);
  COMMSCHED_DEVICE_KERNELS(COMMSCHED_KERNELS_GET)
#undef COMMSCHED_KERNELS_GET
  return why;
}

std::string CudaKernels::LaunchNamed(CUfunction function, uint64_t threads,
                                     void* args, cudaStream_t stream) const {
  if (threads == 0) return "";
  const auto blocks = static_cast<unsigned>(
      std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
  const CudaDriver& driver = api_->driver;
  return api_->Check("cuLaunchKernel", driver.InContext([&] {
    return driver.LaunchKernel(function, blocks, 1, 1, kThreads, 1, 1,
                               /*sharedMemBytes=*/0, stream, &args, nullptr);
  }));
}

}  // namespace commsched::kernels

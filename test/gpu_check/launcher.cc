#include "test/gpu_check/launcher.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/status_macros.h"

// The fat binary that nvcc makes of kernels.cu, as bytes of this program.
asm(R"(
  .section .rodata
  .balign 64
  .hidden commsched_gpu_check_fatbin
  .global commsched_gpu_check_fatbin
commsched_gpu_check_fatbin:
  .incbin ")" COMMSCHED_GPU_CHECK_FATBIN R"("
  .byte 0
  .previous
)");
extern "C" const unsigned char commsched_gpu_check_fatbin[];

namespace commsched::gpu_check {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMostBlocks = 4096;

absl::Status Outcome(const std::string& why) {
  return why.empty() ? absl::OkStatus() : absl::InternalError(why);
}

}  // namespace

absl::StatusOr<const Launcher*> Launcher::Get() {
  static const auto* const made = new absl::StatusOr<const Launcher*>(Make());
  return *made;
}

absl::StatusOr<const Launcher*> Launcher::Make() {
  auto launcher = std::make_unique<Launcher>();
  RETURN_IF_ERROR(Outcome(launcher->cuda_.Load()));
  Dl_info runtime = {};
  void* handle = nullptr;
  if (dladdr(reinterpret_cast<void*>(launcher->cuda_.MemsetAsync), &runtime) !=
      0) {
    handle = dlopen(runtime.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  if (handle == nullptr) {
    return absl::UnavailableError("the CUDA runtime is no shared library");
  }
  const auto count = reinterpret_cast<decltype(&cudaGetDeviceCount)>(
      dlsym(handle, "cudaGetDeviceCount"));
  RETURN_IF_ERROR(
      launcher->Check("cudaGetDeviceCount", count(&launcher->num_devices_)));
  launcher->launch_twin_ = reinterpret_cast<decltype(launch_twin_)>(
      dlsym(handle, "fake_gpu_launch"));
  launcher->peek_ =
      reinterpret_cast<decltype(peek_)>(dlsym(handle, "fake_gpu_peek"));
  if (!launcher->on_stand_ins()) RETURN_IF_ERROR(launcher->LoadKernels());
  return launcher.release();  // As long as the process.
}

absl::Status Launcher::LoadKernels() {
  if (!cuda_.driver_missing.empty()) {
    return absl::UnavailableError("no CUDA driver: " + cuda_.driver_missing);
  }
  const kernels::CudaDriver& driver = cuda_.driver;
  CUlibrary library = nullptr;
  RETURN_IF_ERROR(Check("cuLibraryLoadData", driver.InContext([&] {
    return driver.LibraryLoadData(&library, commsched_gpu_check_fatbin, nullptr,
                                  nullptr, 0, nullptr, nullptr, 0);
  })));
  // Of whichever device they are launched on.
  const auto get = [&](const char* name,
                       CUfunction* out_function) -> absl::Status {
    CUkernel kernel = nullptr;
    RETURN_IF_ERROR(Check("cuLibraryGetKernel",
                          driver.LibraryGetKernel(&kernel, library, name)));
    *out_function = reinterpret_cast<CUfunction>(kernel);
    return absl::OkStatus();
  };
#define COMMSCHED_CHECK_GET(name, kernel) \
  RETURN_IF_ERROR(get(#name, &functions_.name));
  COMMSCHED_GPU_CHECK_KERNELS(COMMSCHED_CHECK_GET)
#undef COMMSCHED_CHECK_GET
  return absl::OkStatus();
}

absl::Status Launcher::LaunchKernel(int device, CUfunction function,
                                    uint64_t count, void* args,
                                    cudaStream_t stream) const {
  if (count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Check("cudaSetDevice", cuda_.SetDevice(device)));
  const auto blocks = static_cast<unsigned>(
      std::min((count + kThreads - 1) / kThreads, kMostBlocks));
  return Check(
      "cuLaunchKernel",
      cuda_.driver.LaunchKernel(function, blocks, 1, 1, kThreads, 1, 1,
                                /*sharedMemBytes=*/0, stream, &args, nullptr));
}

absl::Status Launcher::Check(const char* call, cudaError_t code) const {
  return Outcome(cuda_.Check(call, code));
}

absl::Status Launcher::Check(const char* call, CUresult code) const {
  return Outcome(cuda_.Check(call, code));
}

}  // namespace commsched::gpu_check

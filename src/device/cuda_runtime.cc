#include "device/cuda_runtime.h"

#include <dlfcn.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda_library.h"

namespace commsched {
namespace {

absl::StatusOr<const CudaRuntime*> Load() {
  void* handle = nullptr;
  const std::string why = kernels::OpenCudaRuntime(&handle);
  if (!why.empty()) {
    return absl::UnavailableError(absl::StrCat("no CUDA runtime: ", why));
  }
  auto cuda = std::make_unique<CudaRuntime>();
  cuda->file = kernels::FileOf(dlsym(handle, "cudaRuntimeGetVersion"));
#define COMMSCHED_CUDA_LOAD(name)                                          \
  cuda->name =                                                             \
      reinterpret_cast<decltype(cuda->name)>(dlsym(handle, "cuda" #name)); \
  if (cuda->name == nullptr) {                                             \
    return absl::UnavailableError(                                         \
        absl::StrCat("CUDA runtime ", cuda->file, " has no cuda" #name));  \
  }
  COMMSCHED_CUDA_FUNCTIONS(COMMSCHED_CUDA_LOAD)
#undef COMMSCHED_CUDA_LOAD
  // Says so without a driver, too.
  RETURN_IF_ERROR(cuda->Check("cudaDriverGetVersion",
                              cuda->DriverGetVersion(&cuda->driver_version)));
  RETURN_IF_ERROR(cuda->Check("cudaRuntimeGetVersion",
                              cuda->RuntimeGetVersion(&cuda->runtime_version)));
  if (cuda->driver_version == 0) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA driver: ", cuda->file, " finds none"));
  }
  const cudaError_t counted = cuda->GetDeviceCount(&cuda->num_devices);
  if (counted != cudaSuccess || cuda->num_devices == 0) {
    (void)cuda->GetLastError();  // It is told by what is returned.
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: ", cuda->GetErrorString(counted)));
  }
  const std::string missing = cuda->driver.Load(handle);
  if (!missing.empty()) {
    return absl::UnavailableError(absl::StrCat("no CUDA driver: ", missing));
  }
  return cuda.release();  // As long as the process.
}

// Whether it says that a call broke the rules of stream capture.
bool IsOfCapture(int code) {
  return code >= cudaErrorStreamCaptureUnsupported &&
         code <= cudaErrorStreamCaptureWrongThread;
}

absl::Status Failure(const char* call, absl::string_view text, int code) {
  const std::string message = absl::StrCat(call, ": ", text, " (", code, ")");
  if (IsOfCapture(code)) {
    return absl::FailedPreconditionError(absl::StrCat(
        message, "; a step is captured by commsched_session_capture_begin()"));
  }
  return code == cudaErrorMemoryAllocation
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

}  // namespace

absl::StatusOr<const CudaRuntime*> CudaRuntime::Get() {
  static const auto* const loaded =
      new absl::StatusOr<const CudaRuntime*>(Load());
  return *loaded;
}

absl::Status CudaRuntime::Check(const char* call, cudaError_t code) const {
  if (code == cudaSuccess) return absl::OkStatus();
  return Failure(call, GetErrorString(code), static_cast<int>(code));
}

absl::Status CudaRuntime::Check(const char* call, CUresult code) const {
  if (code == CUDA_SUCCESS) return absl::OkStatus();
  return Failure(call, driver.TextOf(code), static_cast<int>(code));
}

}  // namespace commsched

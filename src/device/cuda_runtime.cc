#include "device/cuda_runtime.h"

#include <dlfcn.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/open_library.h"

namespace commsched {
namespace {

// The versions whose functions this was built for, and the one before: what is
// used has not changed between them.
const kernels::VendorLibrary kLibrary = {
    "COMMSCHED_CUDART_LIB",
    {"libcudart.so.13", "libcudart.so.12", "libcudart.so"},
    {"cu13/lib/libcudart.so.13", "cuda_runtime/lib/libcudart.so.12"}};

absl::StatusOr<const CudaRuntime*> Load() {
  void* handle = nullptr;
  const std::string why = kernels::OpenLibrary(kLibrary, &handle);
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
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: ", cuda->GetErrorString(counted)));
  }
  return cuda.release();  // As long as the process.
}

// Whether it says that a call broke the rules of stream capture.
bool IsOfCapture(cudaError_t code) {
  return code >= cudaErrorStreamCaptureUnsupported &&
         code <= cudaErrorStreamCaptureWrongThread;
}

}  // namespace

absl::StatusOr<const CudaRuntime*> CudaRuntime::Get() {
  static const auto* const loaded =
      new absl::StatusOr<const CudaRuntime*>(Load());
  return *loaded;
}

absl::Status CudaRuntime::Check(const char* call, cudaError_t code) const {
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": ", GetErrorString(code),
                                           " (", static_cast<int>(code), ")");
  if (IsOfCapture(code)) {
    return absl::FailedPreconditionError(absl::StrCat(
        message, "; a step is captured by commsched_session_capture_begin()"));
  }
  return code == cudaErrorMemoryAllocation
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

}  // namespace commsched

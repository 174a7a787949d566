// In place of a CUDA device, in a build without CUDA's headers.
#include "device/cuda_device.h"

namespace commsched {
namespace {

absl::Status Missing() {
  return absl::UnimplementedError(
      "this build of commsched has no CUDA: cuda_runtime_api.h was not found");
}

}  // namespace

absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice(int /*ordinal*/) {
  return Missing();
}

absl::StatusOr<int> NumCudaDevices() { return Missing(); }

}  // namespace commsched

#ifndef COMMSCHED_SRC_DEVICE_CUDA_DEVICE_H_
#define COMMSCHED_SRC_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"

namespace commsched {

// CUDA device `ordinal` of this process, by its runtime library. kUnavailable
// if there is no such device, saying what there is; kUnimplemented in a build
// without CUDA's headers.
absl::StatusOr<std::shared_ptr<Device>> OpenCudaDevice(int ordinal);

// How many this process sees; the errors of OpenCudaDevice().
absl::StatusOr<int> NumCudaDevices();

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_CUDA_DEVICE_H_

// NVIDIA's runtime library as a table of functions, so that one build serves
// machines with and without it.
#ifndef COMMSCHED_SRC_DEVICE_CUDA_RUNTIME_H_
#define COMMSCHED_SRC_DEVICE_CUDA_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda_driver.h"

namespace commsched {

// X(name): cuda<name>, with the type that the vendor's header gives it.
#define COMMSCHED_CUDA_FUNCTIONS(X) \
  X(DriverGetVersion)               \
  X(RuntimeGetVersion)              \
  X(GetDeviceCount)                 \
  X(GetDevice)                      \
  X(SetDevice)                      \
  X(GetErrorString)                 \
  X(GetLastError)                   \
  X(DeviceGetStreamPriorityRange)   \
  X(StreamCreateWithPriority)       \
  X(StreamDestroy)                  \
  X(StreamSynchronize)              \
  X(StreamWaitEvent)                \
  X(StreamIsCapturing)              \
  X(EventCreateWithFlags)           \
  X(EventDestroy)                   \
  X(EventRecord)                    \
  X(EventRecordWithFlags)           \
  X(Memcpy)                         \
  X(MemcpyAsync)                    \
  X(Memcpy2DAsync)                  \
  X(Memset)                         \
  X(MemsetAsync)                    \
  X(ThreadExchangeStreamCaptureMode)

// Constant after Load().
struct CudaRuntime {
#define COMMSCHED_CUDA_MEMBER(name) decltype(&::cuda##name) name = nullptr;
  COMMSCHED_CUDA_FUNCTIONS(COMMSCHED_CUDA_MEMBER)
#undef COMMSCHED_CUDA_MEMBER

  // For what differs between versions of the runtime, and for what may fail, or
  // finds work that is not complete, without being an error of the caller's.
  kernels::CudaDriver driver;

  int runtime_version = 0;  // 13000 for 13.0
  int driver_version = 0;
  int num_devices = 0;
  std::string file;  // What was loaded.

  // The library of this process, found once (kernels/cuda_library.h says
  // where). kUnavailable, "no CUDA driver: ..." and the like, if this machine
  // cannot compute with it.
  static absl::StatusOr<const CudaRuntime*> Get();

  // OK, or `call` with the vendor's words. The numbers of codes are those of
  // the runtime in either case.
  absl::Status Check(const char* call, cudaError_t code) const;
  absl::Status Check(const char* call, CUresult code) const;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_CUDA_RUNTIME_H_

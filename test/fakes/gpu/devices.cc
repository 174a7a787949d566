// Devices and errors, of the stand-in of the CUDA runtime.
#include "state.h"

namespace fake_gpu {
namespace {

thread_local int current_device = 0;

}  // namespace

int CurrentDevice() { return current_device; }

}  // namespace fake_gpu

using fake_gpu::Failed;

cudaError_t cudaDriverGetVersion(int* version) {
  FAKE_ENTER();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  FAKE_ENTER();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  FAKE_ENTER();
  *count = fake_gpu::kNumDevices;
  return cudaSuccess;
}

// Of the thread: "Sets device as the current device for the calling host
// thread" (cudaSetDevice).
cudaError_t cudaGetDevice(int* device) {
  FAKE_ENTER();
  *device = fake_gpu::current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  FAKE_ENTER();
  if (device < 0 || device >= fake_gpu::kNumDevices) {
    return Failed(cudaErrorInvalidDevice);
  }
  fake_gpu::current_device = device;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInvalidValue:
      return "invalid argument";
    default:
      return "fake error";
  }
}

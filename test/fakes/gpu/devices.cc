// Devices and errors, of the stand-in of the CUDA runtime.
#include <atomic>

#include "fake_gpu.h"
#include "state.h"

namespace fake_gpu {
namespace {

thread_local int current_device = 0;

std::atomic<int> runtime_version{CUDART_VERSION};
std::atomic<int> driver_version{CUDART_VERSION};
std::atomic<int> compute_capability{90};
std::atomic<int> multiprocessors{132};  // Of an H200.

}  // namespace

int CurrentDevice() { return current_device; }
int RuntimeVersion() { return runtime_version; }
int DriverVersion() { return driver_version; }
int ComputeCapability() { return compute_capability; }
int Multiprocessors() { return multiprocessors; }

}  // namespace fake_gpu

using fake_gpu::Failed;

int fake_cuda_runtime_version(int version) {
  return fake_gpu::runtime_version.exchange(version);
}

int fake_cuda_driver_version(int version) {
  return fake_gpu::driver_version.exchange(version);
}

int fake_gpu_multiprocessors(int number) {
  return fake_gpu::multiprocessors.exchange(number);
}

int fake_gpu_compute_capability(int capability) {
  return fake_gpu::compute_capability.exchange(capability);
}

cudaError_t cudaDriverGetVersion(int* version) {
  FAKE_ENTER();
  *version = fake_gpu::DriverVersion();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  FAKE_ENTER();
  *version = fake_gpu::RuntimeVersion();
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

// Functions of the driver, of the stand-in. Their codes have the numbers of the
// runtime's, and are not its last error.
#include <cuda.h>

#include "capture.h"
#include "fake_gpu.h"
#include "state.h"

namespace fake_gpu {
namespace {

CUresult Code(int code) { return static_cast<CUresult>(code); }

bool IsNull() { return is_null.load(std::memory_order_relaxed); }

// "There is no context bound to the current thread"
// (CUDA_ERROR_INVALID_CONTEXT).
template <typename Call>
CUresult InContext(const char* name, const Call& call) {
  return Code(OfDriver(name, [&]() -> int {
    if (!IsNull() && !HasContext()) return CUDA_ERROR_INVALID_CONTEXT;
    return call();
  }));
}

}  // namespace
}  // namespace fake_gpu

using fake_gpu::Code;
using fake_gpu::InContext;
using fake_gpu::OfDriver;

CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(code));
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  return Code(OfDriver("cuDriverGetVersion", [&] {
    *version = fake_gpu::DriverVersion();
    return CUDA_SUCCESS;
  }));
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return Code(OfDriver("cuDeviceGet", [&]() -> int {
    if (ordinal < 0 || ordinal >= fake_gpu::kNumDevices) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
  }));
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice /*device*/) {
  return Code(OfDriver("cuDeviceGetAttribute", [&]() -> int {
    if (attribute != CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    *value = fake_gpu::Multiprocessors();
    return CUDA_SUCCESS;
  }));
}

// Not null: there is nothing behind it.
CUresult cuCtxGetCurrent(CUcontext* context) {
  return Code(OfDriver("cuCtxGetCurrent", [&] {
    static char contexts[fake_gpu::kNumDevices];
    *context =
        fake_gpu::HasContext()
            ? reinterpret_cast<CUcontext>(&contexts[fake_gpu::CurrentDevice()])
            : nullptr;
    return CUDA_SUCCESS;
  }));
}

// Its documentation does not say that an event is enough, and no context is
// needed.
CUresult cuEventQuery(CUevent event) {
  return InContext("cuEventQuery", [&] { return fake_gpu::QueryEvent(event); });
}

CUresult cuStreamQuery(CUstream stream) {
  return InContext("cuStreamQuery",
                   [&] { return fake_gpu::QueryStream(stream); });
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return InContext("cuMemAlloc", [&]() -> int {
    // "If bytesize is 0, cuMemAlloc() returns CUDA_ERROR_INVALID_VALUE"
    // (cuMemAlloc).
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    void* found = nullptr;
    const int code = fake_gpu::AllocateMemory(bytes, &found);
    *address = reinterpret_cast<CUdeviceptr>(found);
    return code;
  });
}

// What ends something does so also where an error sticks.
CUresult cuMemFree(CUdeviceptr address) {
  return Code(fake_gpu::FreeMemory(fake_gpu::Enter("cuMemFree"),
                                   reinterpret_cast<void*>(address)));
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned /*flags*/) {
  return InContext("cuMemHostAlloc",
                   [&] { return fake_gpu::AllocatePinned(bytes, address); });
}

// "pointer must be aligned to 4 bytes" is how its siblings put it; misaligned
// addresses are CUDA_ERROR_INVALID_VALUE (cuMemsetD32Async).
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t words,
                          CUstream stream) {
  return InContext("cuMemsetD32Async", [&]() -> int {
    if (address % sizeof(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    return fake_gpu::SetWords(reinterpret_cast<void*>(address), value, words,
                              stream);
  });
}

CUresult cuMemFreeHost(void* address) {
  return Code(fake_gpu::FreePinned(fake_gpu::Enter("cuMemFreeHost"), address));
}

// "This function will not return an error when the ptr encountered is not a
// valid CUDA pointer. Instead, the attributes are assigned default NULL values"
// (cuPointerGetAttributes).
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr address) {
  return Code(OfDriver("cuPointerGetAttributes", [&]() -> int {
    const auto* const at = reinterpret_cast<const void*>(address);
    const int device = fake_gpu::AllMemory().DeviceOf(at);
    const bool known = device >= 0 || !fake_gpu::IsPageable(at);
    for (unsigned i = 0; i < count; ++i) {
      switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
          *static_cast<unsigned*>(data[i]) = device >= 0 ? CU_MEMORYTYPE_DEVICE
                                             : known     ? CU_MEMORYTYPE_HOST
                                                         : 0;
          break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
          *static_cast<unsigned*>(data[i]) = 0;
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
          *static_cast<int*>(data[i]) =
              known ? (device >= 0 ? device : fake_gpu::CurrentDevice()) : 0;
          break;
        default:
          return CUDA_ERROR_NOT_SUPPORTED;
      }
    }
    return CUDA_SUCCESS;
  }));
}

// The name that the driver has for it, whatever version the header knows.
#undef cuStreamGetCaptureInfo_v2
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream stream,
                                              CUstreamCaptureStatus* status,
                                              cuuint64_t* id, CUgraph*,
                                              const CUgraphNode**, size_t*) {
  return InContext("cuStreamGetCaptureInfo", [&]() -> int {
    cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
    const int code = fake_gpu::CaptureInfo(stream, &found, &number);
    *status = static_cast<CUstreamCaptureStatus>(found);
    if (id != nullptr) *id = number;
    return code;
  });
}

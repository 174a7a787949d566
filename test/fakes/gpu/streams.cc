// Streams, of the stand-in of the CUDA runtime.
#include "capture.h"
#include "fake_gpu.h"
#include "state.h"

using fake_gpu::Failed;
using fake_gpu::StreamKind;
using fake_gpu::StreamOf;

namespace fake_gpu {
namespace {

// "Lower numbers represent higher priorities" (cudaStreamCreateWithPriority).
constexpr int kGreatestPriority = -5;

int Clamped(int priority) {
  if (priority > 0) return 0;
  return priority < kGreatestPriority ? kGreatestPriority : priority;
}

StreamKind StreamKindOf(unsigned flags) {
  return flags == cudaStreamNonBlocking ? StreamKind::kNonBlocking
                                        : StreamKind::kBlocking;
}

}  // namespace
}  // namespace fake_gpu

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_ENTER();
  *least = 0;
  *greatest = fake_gpu::kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  FAKE_ENTER();
  *stream = fake_gpu::MakeStream(StreamKind::kBlocking, 0);
  return cudaSuccess;
}

// "If the specified priority is outside the numerical range returned by
// cudaDeviceGetStreamPriorityRange, it will automatically be clamped to the
// lowest or the highest number in the range" (cudaStreamCreateWithPriority).
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int priority) {
  FAKE_ENTER();
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
    return Failed(cudaErrorInvalidValue);
  }
  *stream = fake_gpu::MakeStream(fake_gpu::StreamKindOf(flags),
                                 fake_gpu::Clamped(priority));
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  FAKE_ENTER();
  if (!fake_gpu::IsKnown(stream)) return Failed(cudaErrorInvalidResourceHandle);
  *priority = StreamOf(stream)->priority();
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  FAKE_ENTER();
  if (!fake_gpu::IsKnown(stream)) return Failed(cudaErrorInvalidResourceHandle);
  *flags = StreamOf(stream)->kind() == StreamKind::kNonBlocking
               ? cudaStreamNonBlocking
               : cudaStreamDefault;
  return cudaSuccess;
}

// "In case the device is still doing work in the stream stream when
// cudaStreamDestroy() is called, the function will return immediately and the
// resources associated with stream will be released automatically once the
// device has completed all work in stream" (cudaStreamDestroy). On threads it
// waits, which nobody may rely on.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const int code = fake_gpu::Enter(__func__);
  if (!fake_gpu::DestroyStream(stream)) {
    return Failed(cudaErrorInvalidResourceHandle);
  }
  return static_cast<cudaError_t>(code);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_ENTER();
  if (!fake_gpu::IsKnown(stream)) return Failed(cudaErrorInvalidResourceHandle);
  FAKE_CHECK(fake_gpu::CheckSynchronize(stream));
  StreamOf(stream)->Synchronize();
  return cudaSuccess;
}

int fake_gpu::QueryStream(cudaStream_t stream) {
  if (!IsKnown(stream)) return cudaErrorInvalidResourceHandle;
  const int code = CheckSynchronize(stream);
  if (code != cudaSuccess) return code;
  if (TheDriver().on()) TheDriver().RunSome();
  return StreamOf(stream)->IsIdle() ? int{cudaSuccess} : NotReady();
}

// As cudaEventQuery() does, it leaves a last error.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::QueryStream(stream));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  FAKE_ENTER();
  fake_gpu::SynchronizeDevice(fake_gpu::CurrentDevice());
  return cudaSuccess;
}

// Events, of the stand-in of the CUDA runtime.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "capture.h"
#include "fake_gpu.h"
#include "state.h"

namespace fake_gpu {
namespace {

std::atomic<uint64_t> num_events{0};

// Null: it was never recorded.
std::shared_ptr<Marker> LastOf(cudaEvent_t event) {
  const std::lock_guard<std::mutex> lock(event->mu);
  return event->last;
}

}  // namespace
}  // namespace fake_gpu

using fake_gpu::AllClocks;
using fake_gpu::Failed;
using fake_gpu::LastOf;
using fake_gpu::Marker;
using fake_gpu::StreamOf;
using fake_gpu::TheDriver;

uint64_t fake_gpu_num_events(void) { return fake_gpu::num_events; }

// "Before the first call to cudaEventRecord(), an event represents an empty set
// of work" (cudaEventRecord): nobody waits for it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned int /*flags*/) {
  FAKE_ENTER();
  if (fake_gpu::is_null.load(std::memory_order_relaxed)) return cudaSuccess;
  if (!fake_gpu::IsKnown(stream) || event == nullptr) {
    return Failed(cudaErrorInvalidResourceHandle);
  }
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  if (const std::optional<int> captured = fake_gpu::CaptureWait(stream, event);
      captured.has_value()) {
    FAKE_CHECK(*captured);
    return cudaSuccess;
  }
  std::shared_ptr<Marker> last = LastOf(event);
  if (last != nullptr) StreamOf(stream)->WaitFor(std::move(last));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  FAKE_ENTER();
  *event = new CUevent_st(fake_gpu::CurrentDevice(),
                          (flags & cudaEventDisableTiming) == 0);
  ++fake_gpu::num_events;
  return cudaSuccess;
}

// "An event may be destroyed before it is complete" (cudaEventDestroy).
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const int code = fake_gpu::Enter(__func__);
  delete event;
  --fake_gpu::num_events;
  return static_cast<cudaError_t>(code);
}

// "event and stream must be on the same CUDA context"; it "will overwrite the
// previously captured state" (cudaEventRecord).
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_ENTER();
  if (fake_gpu::is_null.load(std::memory_order_relaxed)) return cudaSuccess;
  if (!fake_gpu::IsKnown(stream) || event == nullptr) {
    return Failed(cudaErrorInvalidResourceHandle);
  }
  fake_gpu::Stream* const on = StreamOf(stream);
  if (on->device() != event->device) {
    return Failed(cudaErrorInvalidResourceHandle);
  }
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  if (fake_gpu::CaptureRecord(on, event)) return cudaSuccess;
  fake_gpu::SetRecord(event, on->Record());
  return cudaSuccess;
}

// Of an event that was not recorded, "cudaEventQuery() would return
// cudaSuccess" (cudaEventRecord).
int fake_gpu::QueryEvent(cudaEvent_t event) {
  if (is_null.load(std::memory_order_relaxed)) return cudaSuccess;
  if (const int code = CheckQuery(event); code != cudaSuccess) return code;
  const std::shared_ptr<Marker> last = LastOf(event);
  if (last == nullptr) return cudaSuccess;
  if (TheDriver().on()) TheDriver().RunSome();
  if (!last->done()) return NotReady();
  AllClocks().Learn(last->clock());
  return cudaSuccess;
}

// That work is not complete is the last error, as it may be: the runtime of
// CUDA 13.0 leaves none, older ones were not tried.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::QueryEvent(event));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_ENTER();
  FAKE_CHECK(fake_gpu::CheckQuery(event));
  const std::shared_ptr<Marker> last = LastOf(event);
  if (last == nullptr) return cudaSuccess;
  if (TheDriver().on()) {
    TheDriver().RunUntil([&] { return last->done(); });
  } else {
    last->Wait();
  }
  AllClocks().Learn(last->clock());
  return cudaSuccess;
}

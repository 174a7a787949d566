#include "device/cuda_event.h"

#include <bit>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "device/device_counters.h"

namespace commsched {
namespace {

// Greater than any generation.
constexpr uint64_t kEnd = uint64_t{1} << 62;
// How long a host that waits looks without a break, and the breaks then.
constexpr int64_t kLookNs = int64_t{50} * 1000;
constexpr std::chrono::microseconds kNap{50};

// Looks again and again until `done` says so.
template <typename Done>
void Await(const Done& done) {
  int64_t nap_from_ns = 0;
  while (!done()) {
    const int64_t now_ns = SystemClock::Get().NowNs();
    if (nap_from_ns == 0) nap_from_ns = now_ns + kLookNs;
    if (now_ns < nap_from_ns) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace

CudaPlace::Current::Current(CudaPlace* place) : place_(place) {
  place_->Check("cudaGetDevice", place_->cuda().GetDevice(&before_));
  if (before_ == place_->ordinal()) return;
  place_->Check("cudaSetDevice", place_->cuda().SetDevice(place_->ordinal()));
}

CudaPlace::Current::~Current() {
  if (before_ == place_->ordinal()) return;
  place_->Check("cudaSetDevice", place_->cuda().SetDevice(before_));
}

CudaPlace::Unrestricted::Unrestricted(CudaPlace* place) : place_(place) {
  place_->Check("cudaThreadExchangeStreamCaptureMode",
                place_->cuda().ThreadExchangeStreamCaptureMode(&mode_));
}

CudaPlace::Unrestricted::~Unrestricted() {
  place_->Check("cudaThreadExchangeStreamCaptureMode",
                place_->cuda().ThreadExchangeStreamCaptureMode(&mode_));
}

void CudaPlace::Fail(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!status_.ok()) return;
  status_ = Named(why);
  failed_.store(true, std::memory_order_release);
}

absl::Status CudaPlace::Named(const absl::Status& why) const {
  if (why.ok()) return why;
  return absl::Status(
      why.code(), absl::StrCat("CUDA device ", ordinal_, ": ", why.message()));
}

absl::Status CudaPlace::status() const {
  MutexLock lock(&mu_);
  return status_;
}

CudaEvent::CudaEvent(std::shared_ptr<CudaPlace> place, uint32_t depth)
    : place_(std::move(place)),
      depth_(std::bit_ceil(depth)),
      slots_(std::make_unique<Slot[]>(depth_)) {}

absl::StatusOr<std::unique_ptr<Event>> CudaEvent::Create(
    std::shared_ptr<CudaPlace> place, uint32_t depth) {
  std::unique_ptr<CudaEvent> event(new CudaEvent(std::move(place), depth));
  const CudaPlace::Current current(event->place_.get());
  for (uint32_t i = 0; i < event->depth_; ++i) {
    RETURN_IF_ERROR(event->MakeNative(&event->slots_[i].native));
  }
  GlobalDeviceCounters().events_created.fetch_add(1, std::memory_order_relaxed);
  return std::unique_ptr<Event>(std::move(event));
}

CudaEvent::~CudaEvent() {
  const CudaPlace::Current current(place_.get());
  const auto destroy = [this](cudaEvent_t native) {
    if (native == nullptr) return;
    place_->Check("cudaEventDestroy", place_->cuda().EventDestroy(native));
  };
  for (uint32_t i = 0; i < depth_; ++i) destroy(slots_[i].native);
  destroy(in_capture_);
  destroy(in_graph_);
}

absl::Status CudaEvent::MakeNative(cudaEvent_t* out_native) {
  const CudaRuntime& cuda = place_->cuda();
  return cuda.Check(
      "cudaEventCreateWithFlags",
      cuda.EventCreateWithFlags(out_native, cudaEventDisableTiming));
}

absl::Status CudaEvent::PrepareCapture(bool watched) {
  const CudaPlace::Current current(place_.get());
  const auto make = [this](cudaEvent_t* native) -> absl::Status {
    if (*native != nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(MakeNative(native));
    GlobalDeviceCounters().events_created.fetch_add(1,
                                                    std::memory_order_relaxed);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(make(&in_capture_));
  return watched ? make(&in_graph_) : absl::OkStatus();
}

void CudaEvent::RaiseTo(uint64_t generation) const {
  uint64_t known = complete_.load(std::memory_order_relaxed);
  while (known < generation &&
         !complete_.compare_exchange_weak(known, generation,
                                          std::memory_order_acq_rel)) {
  }
}

bool CudaEvent::IsComplete(uint64_t generation) const {
  if (complete_.load(std::memory_order_acquire) >= generation) return true;
  const Slot& slot = SlotOf(generation);
  const uint64_t recorded = slot.generation.load(std::memory_order_acquire);
  if (recorded == generation) return HasPassed(slot.native, generation);
  if (recorded > generation) {
    RaiseTo(generation);
    return true;
  }
  const uint64_t replayed = replayed_.load(std::memory_order_acquire);
  return replayed >= generation && in_graph_ != nullptr &&
         HasPassed(in_graph_, replayed);
}

bool CudaEvent::HasPassed(cudaEvent_t native, uint64_t generation) const {
  CUresult code = CUDA_SUCCESS;
  {
    // By the driver: that of the runtime may leave the caller's thread a last
    // error where work is not complete.
    const CudaPlace::Unrestricted unrestricted(place_.get());
    const kernels::CudaDriver& driver = place_->cuda().driver;
    code = driver.InContext([&] { return driver.EventQuery(native); });
  }
  if (code == CUDA_ERROR_NOT_READY) return false;
  if (code != CUDA_SUCCESS) {
    place_->Check("cuEventQuery", code);
    return false;
  }
  RaiseTo(generation);
  return true;
}

void CudaEvent::Synchronize(uint64_t generation) {
  Await([&] { return IsComplete(generation) || place_->failed(); });
}

void CudaEvent::AddListener(Parker* /*listener*/) {}

void CudaEvent::Poison() { RaiseTo(kEnd); }

void* CudaEvent::ToRecord(uint64_t generation) {
  return SlotOf(generation).native;
}

void CudaEvent::Recorded(uint64_t generation) {
  SlotOf(generation).generation.store(generation, std::memory_order_release);
}

void CudaEvent::AwaitRecorded() {
  const Slot* latest = &slots_[0];
  for (uint32_t i = 1; i < depth_; ++i) {
    if (slots_[i].generation > latest->generation) latest = &slots_[i];
  }
  const uint64_t generation = latest->generation;
  if (generation == 0) return;
  Await([&] {
    return HasPassed(latest->native, generation) || place_->failed();
  });
}

void* CudaEvent::ToWaitFor(uint64_t generation) {
  if (generation == 0) return nullptr;
  const Slot& slot = SlotOf(generation);
  const uint64_t recorded = slot.generation.load(std::memory_order_acquire);
  if (recorded == generation) return slot.native;
  if (recorded < generation &&
      replayed_.load(std::memory_order_acquire) >= generation) {
    return in_graph_;
  }
  if (recorded < generation &&
      complete_.load(std::memory_order_acquire) < generation) {
    // A device would not wait for it.
    place_->Fail(absl::InternalError(absl::StrCat(
        "generation ", generation, " of an event is waited for on a stream ",
        "before it was recorded; ", recorded, " was")));
  }
  return nullptr;
}

}  // namespace commsched

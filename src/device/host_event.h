#ifndef COMMSCHED_SRC_DEVICE_HOST_EVENT_H_
#define COMMSCHED_SRC_DEVICE_HOST_EVENT_H_

#include <cstdint>

#include "device/device.h"
#include "device/waitable_counter.h"

namespace commsched {

// An event of the host's streams: the greatest complete generation.
//
// Thread-safe.
class HostEvent final : public Event {
 public:
  bool IsComplete(uint64_t generation) const override {
    return complete_.Reached(generation);
  }
  void Synchronize(uint64_t generation) override {
    complete_.WaitFor(generation);
  }
  // The same, but gives up at `deadline_ns` of SystemClock.
  void SynchronizeUntil(uint64_t generation, int64_t deadline_ns) {
    complete_.WaitUntil(generation, deadline_ns);
  }
  void AddListener(Parker* listener) override;
  void Poison() override { complete_.AdvanceTo(WaitableCounter::kEnd); }

  void Complete(uint64_t generation) override {
    complete_.AdvanceTo(generation);
  }

 private:
  WaitableCounter complete_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_HOST_EVENT_H_

#ifndef COMMSCHED_SRC_DEVICE_EVENT_BY_H_
#define COMMSCHED_SRC_DEVICE_EVENT_BY_H_

#include <cstdint>

#include "base/clock.h"
#include "device/device.h"
#include "device/host_event.h"

namespace commsched {

// An event of the host, for who waits for it no longer than until a deadline:
// then it counts as complete, here only.
//
// Thread-safe.
class EventBy final : public Event {
 public:
  // `event` is one that HostDevice made, and outlives this one. `deadline_ns`:
  // of SystemClock.
  EventBy(Event* event, int64_t deadline_ns)
      : event_(*static_cast<HostEvent*>(event)), deadline_ns_(deadline_ns) {}

  bool IsComplete(uint64_t generation) const override {
    return event_.IsComplete(generation) ||
           SystemClock::Get().NowNs() >= deadline_ns_;
  }
  void Synchronize(uint64_t generation) override {
    event_.SynchronizeUntil(generation, deadline_ns_);
  }

  // Who waits only looks.
  void AddListener(Parker* /*listener*/) override {}
  void Poison() override {}
  void Complete(uint64_t /*generation*/) override {}

 private:
  HostEvent& event_;
  const int64_t deadline_ns_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_EVENT_BY_H_

#ifndef COMMSCHED_SRC_DEVICE_DEVICE_H_
#define COMMSCHED_SRC_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/parker.h"

namespace commsched {

// A point in a stream, reused step after step: generation g is complete once
// the work enqueued before Record(event, g) is done. Generations are recorded
// in increasing order; complete(g) implies complete(g-1). Generation 0 is
// complete from the start.
//
// Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  // Whether generation `generation` is complete. Acquire.
  virtual bool IsComplete(uint64_t generation) const = 0;
  // Blocks the calling thread until it is. Returns at once after Poison().
  virtual void Synchronize(uint64_t generation) = 0;
  // From now on `listener` is unparked whenever a generation completes. At most
  // kMaxListeners; before the event is used. The parker must outlive the event.
  static constexpr int kMaxListeners = 4;
  virtual void AddListener(Parker* listener) = 0;
  // Completes every generation, past and future: after the first failure
  // nobody waits for ever (I7). Waiters must look at the failure themselves.
  virtual void Poison() = 0;
};

// An in-order queue of work. Wait and Record enqueue; they block the calling
// thread only if the stream is the calling thread.
class Stream {
 public:
  virtual ~Stream() = default;
  // Work enqueued from now on starts after `event` is complete at `generation`.
  virtual void Wait(Event* event, uint64_t generation) = 0;
  // `event` reaches `generation` when the work enqueued so far is done.
  virtual void Record(Event* event, uint64_t generation) = 0;
  virtual void Synchronize() = 0;
  // True if the stream is whoever calls: waiting on it blocks the host, and
  // what was enqueued is done.
  virtual bool is_caller() const = 0;
};

// Makes the events that this device's streams understand.
class Device {
 public:
  virtual ~Device() = default;
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;
  virtual absl::StatusOr<void*> Allocate(uint64_t bytes) = 0;  // 64-aligned
  virtual void Free(void* address) = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_DEVICE_H_

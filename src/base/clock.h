// Where time comes from: the system's monotonic clock, or a test's.
#ifndef COMMSCHED_SRC_BASE_CLOCK_H_
#define COMMSCHED_SRC_BASE_CLOCK_H_

#include <cstdint>

namespace commsched {

// A monotonic clock in nanoseconds. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Nanoseconds since an arbitrary start; never decreases.
  virtual int64_t NowNs() const = 0;
};

// CLOCK_MONOTONIC, the clock that the deadlines of base/mutex.h and
// base/parker.h are on. It runs while the process is stopped, too: how long to
// wait for others is decided by base/running_clock.h. Thread-safe.
class SystemClock final : public Clock {
 public:
  // The one instance, for callers that take a Clock.
  static const SystemClock& Get();

  int64_t NowNs() const override;
};

// CPU time that the calling thread has used, in nanoseconds.
int64_t ThreadCpuNs();

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_CLOCK_H_

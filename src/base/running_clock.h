// Time that counts towards deadlines.
#ifndef COMMSCHED_SRC_BASE_RUNNING_CLOCK_H_
#define COMMSCHED_SRC_BASE_RUNNING_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace commsched {

// A clock that does not advance while the process does not run: stopped (^Z, a
// debugger) or frozen together with its machine. Deadlines are on it, or the
// process would find them all missed when it goes on, and accuse ranks that
// were stopped with it.
//
// Such a time shows as a gap between two readings, of which it counts at most
// kMostNs. So who waits for a deadline must read the clock every kTickNs:
// SleepUntilNs() says how long to sleep. One that nobody reads stands still.
// A gap may also be due to a machine so busy that no thread got to run; as some
// of it counts, a deadline still comes.
//
// Thread-safe; lock-free but for one reader in many, which the others wait for.
class RunningClock final : public Clock {
 public:
  static constexpr int64_t kTickNs = 100 * 1000 * 1000;
  static constexpr int64_t kMostNs = 250 * 1000 * 1000;

  // The one of this process, which all deadlines are on. Runs on SystemClock.
  static const RunningClock& Get();

  // `clock` outlives this one.
  explicit RunningClock(const Clock& clock)
      : clock_(clock), seen_ns_(clock.NowNs()) {}
  RunningClock(const RunningClock&) = delete;
  RunningClock& operator=(const RunningClock&) = delete;

  int64_t NowNs() const override;

  // When who waits for `deadline_ns` of this clock has to wake, on the clock
  // below: then, or in kTickNs. Of kNoDeadlineNs, never.
  int64_t SleepUntilNs(int64_t deadline_ns) const;

 private:
  static constexpr int64_t kTicking = -1;

  const Clock& clock_;

  // The last tick: when it was on the clock below, and what had counted by
  // then. A reader takes counted_ns_ if seen_ns_ is the same before and after
  // (released by the ticking thread, acquired by readers).
  mutable std::atomic<int64_t> seen_ns_;  // kTicking: both are being written
  mutable std::atomic<int64_t> counted_ns_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_RUNNING_CLOCK_H_

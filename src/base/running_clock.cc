#include "base/running_clock.h"

#include <algorithm>
#include <thread>

#include "base/mutex.h"

namespace commsched {

const RunningClock& RunningClock::Get() {
  static const RunningClock clock(SystemClock::Get());
  return clock;
}

// Readings between ticks write nothing, so that threads do not compete for the
// cache line.
int64_t RunningClock::NowNs() const {
  while (true) {
    int64_t seen_ns = seen_ns_.load(std::memory_order_acquire);
    if (seen_ns == kTicking) {
      std::this_thread::yield();
      continue;
    }
    const int64_t counted_ns = counted_ns_.load(std::memory_order_acquire);
    const int64_t now_ns = clock_.NowNs();
    // Another thread may have ticked since.
    const int64_t gap_ns = std::max<int64_t>(0, now_ns - seen_ns);
    if (gap_ns < kTickNs / 2) {
      if (seen_ns_.load(std::memory_order_relaxed) != seen_ns) continue;
      return counted_ns + gap_ns;
    }
    if (!seen_ns_.compare_exchange_strong(seen_ns, kTicking,
                                          std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
      continue;
    }
    const int64_t ticked_ns = counted_ns + std::min(gap_ns, kMostNs);
    counted_ns_.store(ticked_ns, std::memory_order_release);
    seen_ns_.store(now_ns, std::memory_order_release);
    return ticked_ns;
  }
}

int64_t RunningClock::SleepUntilNs(int64_t deadline_ns) const {
  if (deadline_ns == kNoDeadlineNs) return kNoDeadlineNs;
  const int64_t left_ns = std::max<int64_t>(0, deadline_ns - NowNs());
  return clock_.NowNs() + std::min(left_ns, kTickNs);
}

}  // namespace commsched

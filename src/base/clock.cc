#include "base/clock.h"

#include <ctime>

namespace commsched {
namespace {

int64_t ReadNs(clockid_t id) {
  timespec now;
  clock_gettime(id, &now);  // Cannot fail for the two clocks below.
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

const SystemClock& SystemClock::Get() {
  static const SystemClock clock;
  return clock;
}

int64_t SystemClock::NowNs() const { return ReadNs(CLOCK_MONOTONIC); }

int64_t ThreadCpuNs() { return ReadNs(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace commsched

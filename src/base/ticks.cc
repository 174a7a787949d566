#include "base/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/prctl.h>
#endif

#include <fstream>
#include <limits>
#include <string>

#include "base/clock.h"

namespace commsched {
namespace {

#if defined(__x86_64__)

bool CounterIsInvariant() {
  constexpr unsigned kPowerManagement = 0x80000007, kInvariant = 1U << 8;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(kPowerManagement, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kInvariant) != 0;
}

bool ProcessMayReadIt() {
  int mode = 0;
  return prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_ENABLE;
}

// Otherwise it has found the counters of the CPUs to differ, or is a guest that
// is not told whether they do.
bool KernelKeepsTimeByIt() {
  std::ifstream file(
      "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  return file >> source && source == "tsc";
}

bool FindOut() {
  return CounterIsInvariant() && ProcessMayReadIt() && KernelKeepsTimeByIt();
}

#else

bool FindOut() { return false; }

#endif

}  // namespace

bool HasTicks() {
  static const bool has = FindOut();
  return has;
}

// The clock is read between two readings of the counter. Once more if they are
// far apart: the thread lost its CPU in between.
TickAnchor ReadTickAnchor() {
  constexpr int kTries = 3;
  constexpr int64_t kCloseTicks = 1000;
  TickAnchor best;
  int64_t best_apart = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kTries && best_apart > kCloseTicks; ++i) {
    const int64_t before = ReadTicks();
    const int64_t ns = SystemClock::Get().NowNs();
    const int64_t apart = ReadTicks() - before;
    if (apart >= best_apart) continue;
    best = {.ticks = before + apart / 2, .ns = ns};
    best_apart = apart;
  }
  return best;
}

}  // namespace commsched

// The time stamp counter of the CPU.
#ifndef COMMSCHED_SRC_BASE_TICKS_H_
#define COMMSCHED_SRC_BASE_TICKS_H_

#include <cstdint>

namespace commsched {

// Whether ReadTicks() may stand in for a clock: the counter runs at one rate on
// all CPUs, always, and the kernel keeps its own time by it. Then readings on
// different CPUs compare as those of a clock do.
bool HasTicks();

// The counter, for less than half of what a clock costs. The CPU may read it
// before what stands in front of it is done: some tens of ns early.
inline int64_t ReadTicks() {
#if defined(__x86_64__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return 0;
#endif
}

// One instant on the counter and on SystemClock.
struct TickAnchor {
  int64_t ticks = 0;
  int64_t ns = 0;
};

// The present one. Only if HasTicks().
TickAnchor ReadTickAnchor();

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_TICKS_H_

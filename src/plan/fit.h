#ifndef COMMSCHED_SRC_PLAN_FIT_H_
#define COMMSCHED_SRC_PLAN_FIT_H_

#include <cstdint>
#include <vector>

#include "plan/slots.h"

namespace commsched {

// Offsets for slots such that no two that overlap in time overlap in space.
struct Fit {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
};

// Everything side by side, nothing shared.
Fit FitSideBySide(const std::vector<Slot>& slots);

// As an allocator would at run time: in order of begin, each into the smallest
// hole that holds it, which it keeps from its first stay to its last one.
// O(n log n).
Fit FitInOrderOfTime(const std::vector<Slot>& slots);

// Largest first, each into the smallest hole between those already placed that
// are alive with it; others may lie there between two stays. Tighter as a rule.
// O(n^2 log n).
Fit FitBySize(const std::vector<Slot>& slots);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_FIT_H_

// What gets an offset of its own in the arena.
#ifndef COMMSCHED_SRC_PLAN_SLOTS_H_
#define COMMSCHED_SRC_PLAN_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "plan/place.h"

namespace commsched {

// [begin, end] in positions of the sequence.
struct Stay {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// One lifetime, or those of a place group, which lie at one offset and take
// turns there. It has the bytes of the largest at each stay.
struct Slot {
  uint64_t bytes = 0;
  bool for_ever = false;
  absl::InlinedVector<Stay, 1> stays;  // apart, in order of time
};

struct Slots {
  std::vector<Slot> slots;  // in order of their first lifetimes
  std::vector<uint32_t> of_lifetime;
  uint32_t num_groups = 0;  // place groups that have a slot
};

// One slot for each lifetime without a group, and one for each place group. The
// order is that of the lifetimes.
Slots SlotsOf(const std::vector<Lifetime>& lifetimes);

// One slot for each lifetime, as if there were no place groups.
Slots SlotsApart(const std::vector<Lifetime>& lifetimes);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_SLOTS_H_

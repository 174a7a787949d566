// Pass 5: where owned buffers and packing memory lie in the arena.
#ifndef COMMSCHED_SRC_PLAN_PLACE_H_
#define COMMSCHED_SRC_PLAN_PLACE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/edge.h"
#include "plan/plan.h"
#include "plan/sequence.h"

namespace commsched {

// One thing that lies in the arena: an owned buffer, or the packing memory of a
// launch (buffer invalid). Its lifetime is [begin, end] in positions of the
// sequence.
struct Lifetime {
  BufferId buffer;
  LaunchId launch;
  uint64_t bytes = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool for_ever = false;     // keeps its memory over the step boundary
  uint32_t place_group = 0;  // of the buffer; 0: none

  // A buffer of a place group that nobody uses: it is given the place of the
  // others and keeps nobody out of it.
  bool IsNeverAlive() const { return begin > end; }
};

struct Arena {
  std::vector<Lifetime> lifetimes;  // owned buffers by id, then staging by key
  std::vector<uint64_t> offsets;    // of each lifetime
  uint64_t bytes = 0;
  std::vector<Edge> edges;  // WaitCause::kArena
};

// A buffer whose first access in the step writes the whole of it, and does not
// read it, lives from that access to its last one. Any other carries contents
// over the step boundary and lives for ever, as does one that nobody uses.
// Packing memory lives while its launch is in flight.
//
// Buffers of a place group lie at one offset, limit or not. In the planned
// order they do not overlap in time, as the dependencies have seen to that,
// which also make the first writer of the next one wait for the last accessors
// of the one before.
//
// Memory is shared only if options.arena_bytes is set and is too small for
// everything side by side: every sharing is a wait that may hold up a launch.
// Then lifetimes that do not overlap may share; the first writer of the next
// occupant waits for all last accessors of the one before, also across the step
// boundary. The offsets are those of the first attempt that fits: best fit in
// order of lifetimes, then by falling size. Of the first, memory rests between
// two occupants for as many positions as still fit, so that the next one waits
// for what has long been done; of few lifetimes it is placed by size where that
// rests longer.
//
// Fails with kResourceExhausted if no attempt fits, naming what is alive at the
// peak and the least size that works; with kOutOfRange, naming what passes it,
// if everything side by side takes more than 2^63-1 bytes.
absl::StatusOr<Arena> PlaceInArena(const Plan& plan, const Sequence& sequence);

// What the place groups of a plan with launches cost: the smallest arena that
// the attempts above find for its order, with them and without.
PlaceGroupReport ReportPlaceGroups(const Plan& plan, const Sequence& sequence);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PLACE_H_

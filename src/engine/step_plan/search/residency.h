#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_RESIDENCY_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_RESIDENCY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commsched::engine {

// The time for which a gathered bucket is whole on a rank. Module ops are
// counted in the order in which they run.
struct Stay {
  uint32_t bucket = 0;
  uint32_t index = 0;   // Among the stays of the bucket.
  uint32_t launch = 0;  // Its gather goes out once so many ops have ended.
  uint32_t first = 0;   // The first and the last op that use it.
  uint32_t last = 0;

  bool operator==(const Stay&) const = default;
};

// What the module ops of a step need at once.
struct LiveNeeds {
  std::vector<std::vector<uint32_t>> used;  // By op: gathered buckets, sorted.
  std::vector<uint64_t> bucket_bytes;       // By bucket, gathered.
  std::vector<uint64_t> other_bytes;        // By op: what else is alive then.

  // Bytes of the buckets that `op` uses, and all else.
  uint64_t BytesAt(size_t op) const;
  // Bytes of the buckets that the op after `op` uses and `op` does not.
  uint64_t NextBytes(uint32_t op) const;
};

// When each bucket is gathered and how long it stays, so that at most
// `budget_bytes` (0: no limit) are alive at once. A pure function.
//
//   - A bucket stays between two of its uses if there is room for it
//     throughout, beside what the ops need and the gathers for the next op: the
//     uses that are closest together first. Around the turn from forward to
//     backward that keeps the last modules' buckets.
//   - What is left of the room goes to prefetching: gathers go out in the order
//     of need, each as early as there is room, and as those that have gone out
//     ahead of need are at most `prefetch_bytes` (0: no limit).
//
// Needs of one op that exceed the budget are not refused here; no room is found
// beside them. The result is by launch, then in order of need.
std::vector<Stay> PlanStays(const LiveNeeds& needs, uint64_t budget_bytes,
                            uint64_t prefetch_bytes = 0);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_RESIDENCY_H_

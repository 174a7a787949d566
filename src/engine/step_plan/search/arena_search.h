#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_ARENA_SEARCH_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_ARENA_SEARCH_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/search/residency.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {

// Memory that the caller allows; 0: what the passes need.
struct ArenaLimits {
  uint64_t arena_bytes = 0;
  uint64_t max_live_bytes = 0;  // Of stage 3, like the next.
  uint64_t prefetch_bytes = 0;  // 0: no limit.

  // The lesser of those that are given; 0: none is.
  uint64_t least() const {
    if (arena_bytes == 0) return max_live_bytes;
    if (max_live_bytes == 0) return arena_bytes;
    return std::min(max_live_bytes, arena_bytes);
  }
  // "max_live_bytes 4096": the field of the least one.
  std::string NameOfLeast() const;
};

// Plans the step with these stays in an arena of at most so many bytes; 0: as
// many as it takes. RESOURCE_EXHAUSTED: it does not fit.
using PlanAttempt =
    std::function<Status(const std::vector<Stay>& stays, uint64_t arena_bytes)>;

// Attempts plans until one fits: within the limits, or else within as little
// memory as does not hold up a step. Fails as the last attempt does, or naming
// the pass that needs more than is allowed.
Status SearchArena(const StepSpec& spec, const Model& model,
                   const Layout& layout, const std::vector<Pass>& passes,
                   const ArenaLimits& limits, const PlanAttempt& attempt);

// Bytes of the gradients that add up whole over all micro-batches.
uint64_t AccumulatedBytes(const StepSpec& spec, const Layout& layout);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_ARENA_SEARCH_H_

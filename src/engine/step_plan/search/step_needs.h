#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_STEP_NEEDS_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_STEP_NEEDS_H_

#include <cstdint>
#include <vector>

#include "engine/model/passes.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/search/residency.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {

// What `passes`, those of a step in stage 2 or 3, need in the arena: the
// gathered buckets that they use, and the gradient buckets from the first
// backward that touches them, of the step or else of the micro-batch, until
// `reduction_ops` ops after the last one, as long as their reduction is taken
// to need.
LiveNeeds NeedsOfStep(const StepSpec& spec, const Layout& layout,
                      const std::vector<Pass>& passes, uint32_t reduction_ops);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_SEARCH_STEP_NEEDS_H_

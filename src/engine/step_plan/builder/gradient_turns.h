#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_GRADIENT_TURNS_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_GRADIENT_TURNS_H_

#include <cstdint>
#include <vector>

#include "engine/step_plan/accumulation.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

// The turns of buckets with offloaded gradients in their slots, in the order in
// which they come: one for each reduction. What is reduced into the slot has
// its turn when its last pass is over; what is added there kReductionPasses
// later, or after the last pass of the step, so that backward need not wait for
// the reduction. `windows`: by bucket. `graph` has the order of first use and
// the slots; ids of buffers and ops are not set. A pure function.
std::vector<GradientTurn> FindGradientTurns(const StepSpec& spec,
                                            const Layout& layout,
                                            const std::vector<Windows>& windows,
                                            const StepGraph& graph);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_GRADIENT_TURNS_H_

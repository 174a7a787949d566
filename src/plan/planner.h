#ifndef COMMSCHED_SRC_PLAN_PLANNER_H_
#define COMMSCHED_SRC_PLAN_PLANNER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "plan/plan.h"

namespace commsched {

// Runs the passes, one file each: order, coalesce, place, lanes, window,
// verify, fingerprint. Pure (I8): no clock, thread, file or device.
absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(
    const Graph& graph, const PlanOptions& options, const CostProfile& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PLANNER_H_

#ifndef COMMSCHED_SRC_PLAN_PLANNER_H_
#define COMMSCHED_SRC_PLAN_PLANNER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// Runs the passes, one file each: roles, order, coalesce, partition,
// prioritize, place, lanes, window, verify, fingerprint. Pure (I8): no clock,
// thread, file or device. All roles of a job together, as their orders are
// parts of one; a plan per role.
absl::StatusOr<std::vector<std::shared_ptr<const Plan>>> BuildPlans(
    absl::Span<const RoleSpec> roles, const PlanOptions& options);

// The only role of a job. The plan keeps a graph that is shared, and copies
// another.
absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(
    std::shared_ptr<const Graph> graph, const PlanOptions& options,
    const CostProfile& profile);
absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(
    const Graph& graph, const PlanOptions& options, const CostProfile& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PLANNER_H_

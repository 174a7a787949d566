#ifndef COMMSCHED_SRC_PLAN_PLANNER_H_
#define COMMSCHED_SRC_PLAN_PLANNER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// Merging by cost is predicted on the whole plan, and limited where the arena
// has no room for it, for up to so many ops of all roles; that takes several
// times as long as planning does.
inline constexpr size_t kMaxOpsCompared = 4096;

// Where the arena has no room for launches merged by cost, they are limited
// this often, to half the arena first and each time to half as much.
inline constexpr int kMaxArenaTries = 4;

// Runs the passes, one file each: roles, order, coalesce, partition,
// prioritize, place, lanes, window, verify, fingerprint. Pure (I8): no clock,
// thread, file or device. All roles of a job together, as their orders are
// parts of one; a plan per role.
//
// By cost (kCoalesceAuto) the plan with merged launches stays only if it is
// predicted to be no slower than the one without, of jobs up to kMaxOpsCompared
// ops, and if it fits into the arena, of these jobs if need be with smaller
// launches. A policy is asked in each of these plans, and what it merges stays.
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

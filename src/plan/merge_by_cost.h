// Pass 2 where PlanOptions::coalesce_bytes is kCoalesceAuto.
#ifndef COMMSCHED_SRC_PLAN_MERGE_BY_COST_H_
#define COMMSCHED_SRC_PLAN_MERGE_BY_COST_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/dependencies.h"
#include "plan/merge_report.h"
#include "plan/order.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// Merges neighbours in key order (coalesce.h) where the cost model predicts no
// longer step. A merge saves a launch (and a latency where lanes are serial),
// and costs what its first member waits for the last to be ready, what the
// first consumer waits for all of it, and the copies or the list that carry it.
// Neighbours join one by one:
//
//   - not across a compute op whose cost is not known, measured or estimated:
//     neither between the ops after which the members are due, nor between
//     their first consumers. What such an op hides, nobody can tell. With
//     Schedule::kSerial nothing is hidden, and only what is due after the same
//     op is merged;
//   - if MergeVerdict::saved_ns is at least 1 / kLeastSavedShare of what the
//     merged launch takes, or 1 / kLeastSavedShareOfTiny if one is tiny beside
//     the other and little can go wrong;
//   - if all members are complete by the latest time that leaves the step as
//     long as it is (MergeTimes); or, second try, late by less than is saved.
//
// The tries, and the launches unmerged, are played whole
// (predict/list_schedule.h), and the fastest stays; the earlier one if several
// are, but merged rather than not. So no step is predicted to be longer than
// unmerged, as far as that model goes: it knows no arena, and the order is
// that of getting ready. The planner compares small plans as a whole
// (planner.h).
//
// With a policy, which may decide otherwise, there is one try, and it stays.
//
// A pure function of graphs, options and profiles, for all roles as one (I8).
absl::StatusOr<std::vector<std::vector<Launch>>> MergeByCost(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, JobOrder* job,
    const PlanOptions& options, MergeReport* report);

// The launches of `options` unmerged, as far as a policy leaves them so. What
// could have been merged ends because of kNotShorter.
absl::StatusOr<std::vector<std::vector<Launch>>> LeaveApart(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, const JobOrder& job,
    const PlanOptions& options);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_MERGE_BY_COST_H_

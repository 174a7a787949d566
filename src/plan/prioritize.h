// Pass 4: in which order launches go that could go at once.
#ifndef COMMSCHED_SRC_PLAN_PRIORITIZE_H_
#define COMMSCHED_SRC_PLAN_PRIORITIZE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/predict/job_model.h"

namespace commsched {

// What another order must gain, as a share of the predicted step. Predictions
// are no better than that, and an order that saves nothing has nothing for it.
inline constexpr double kLeastGain = 0.005;

// Chooses the key order of the launches of all roles, by simulation
// (list_schedule.h).
//
// As ready, the order that comes in, sends first what is due first. By need, a
// link takes of all that is ready what is needed first: the earliest start of
// an op that waits for it, of this step or the next, if communication took no
// time; then by priority hint; then as ready. For one lane and one link, pieces
// small enough, no order is late by less than this one.
//
//   Priority::kOff   nothing changes, and nothing is simulated: free of cost;
//   Priority::kOn    by need;
//   Priority::kAuto  the fastest, if it gains more than kLeastGain over as
//                    ready. If nothing could, by the bound, nothing is tried.
//
// The bound is the step if every launch had a link to itself. No order gains
// more than the distance to it (docs/priority.md).
//
// Schedule::kSerial is left as it is. So are jobs in which roles send to one
// another: a pipeline tick of one role is several of another, and the one order
// in which they all progress is that of their keys. options.policy is asked
// first; its order stands whatever is predicted.
//
// Launches are reordered and take over each other's keys. kInvalidArgument,
// naming the policy and the ops, if the policy's order is none, or is not
// legal.
absl::StatusOr<PriorityReport> Prioritize(absl::Span<const RoleDraft> roles,
                                          const PlanOptions& options);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PRIORITIZE_H_

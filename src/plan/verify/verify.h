#ifndef COMMSCHED_SRC_PLAN_VERIFY_VERIFY_H_
#define COMMSCHED_SRC_PLAN_VERIFY_VERIFY_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// Proves a plan free of races and deadlocks, from the graph's accesses and the
// plan's waits alone: it shares no code with the passes that made the waits
// (I2, I3). kInternal, naming the two ops, the buffer and the missing edge.
//
// What orders two nodes (docs/happens_before.md):
//   - a wait: producer complete -> consumer start;
//   - a same-step compute dependency in ComputeNode::after (host-checked; on
//   one
//     lane the stream keeps it, on another the consumer also needs a wait);
//   - completion order on a communication lane: launch k of a lane completes
//     before a later launch of that lane does (k+1 may *start* earlier);
//   - the step boundary on a compute lane along loop-carried dependencies.
absl::Status VerifyPlan(const Plan& plan);

// Proves that plans which run together do not deadlock, whichever rank is slow.
// `plans` by role, each of which VerifyPlan() has accepted; of `roles` only who
// sits where counts.
//
//   - Keys grow within each role, and are equal where launches meet (I1).
//   - On each group the roles' launches are the same, one by one: what their
//     backends will match. Of sends and receives the k-th from one position to
//     another is, on both sides, the k-th in declared order, of one size.
//   - One graph of all roles has no cycle: a host call comes after the one
//     before it and after the launches that it waits for; a launch is issued
//     after the one before it, after its producers, and after what it waits
//     for, be that a hazard, the arena, the window or the serial schedule; it
//     is complete after all whom it meets were issued, and after the one before
//     it on its lane.
// What is of distance 1 leads from one step to the next, as do host order and
// issue order from the last of a step to the first of the next, and launches
// meet within a step; so if one step has no cycle, no number of steps has one.
//
// kInternal, naming the roles and ops that differ, or those of a cycle.
absl::Status VerifyRoles(absl::Span<const RoleSpec> roles,
                         absl::Span<const Plan* const> plans);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_VERIFY_H_

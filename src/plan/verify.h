#ifndef COMMSCHED_SRC_PLAN_VERIFY_H_
#define COMMSCHED_SRC_PLAN_VERIFY_H_

#include "absl/status/status.h"
#include "plan/plan.h"

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

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_H_

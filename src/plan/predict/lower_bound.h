#ifndef COMMSCHED_SRC_PLAN_PREDICT_LOWER_BOUND_H_
#define COMMSCHED_SRC_PLAN_PREDICT_LOWER_BOUND_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/predict/playback.h"

namespace commsched {

// What no plan with the same launches can beat, per step and rank
// (docs/lower_bound.md).
struct LowerBound {
  int64_t compute_ns = 0;  // CPU of all ranks that share cores / cores
  int64_t link_ns = 0;     // busy time of a link direction, without latencies
  int64_t cycle_ns = 0;    // longest dependency cycle / its distance
  int64_t phases_ns = 0;   // sum over phases between barriers (plan/phases.h)
  int64_t step_ns = 0;     // the largest of them
};

// Of roles that were planned together, which step together: cycles may go
// through several of them, and step_ns is the same for all.
std::vector<LowerBound> LowerBoundsOf(absl::Span<const PlayedRole> roles);

// LowerBound::compute_ns alone.
int64_t ComputeBound(const Plan& plan, const CostProfile& profile);

// The bound of one role by itself.
LowerBound LowerBoundOf(const Plan& plan, const CostProfile& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_LOWER_BOUND_H_

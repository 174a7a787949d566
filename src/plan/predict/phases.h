#ifndef COMMSCHED_SRC_PLAN_PREDICT_PHASES_H_
#define COMMSCHED_SRC_PLAN_PREDICT_PHASES_H_

#include <cstdint>

#include "plan/plan.h"

namespace commsched {

// A bound on the period from barriers (docs/lower_bound.md): the compute ops of
// one lane run one after the other, so an op x of it cuts the step. Launches
// that x needs are complete before any rank starts x; launches that need x
// start after all ranks have completed it. Hence for any set of cuts the period
// is at least the sum, over the phases between neighbouring cuts, of
//
//   max(CPU of the lane's ops in the phase, of all ranks that share cores;
//       time for which the launches that must start and end in the phase keep
//       the link busy, and the latency of the last of them)
//
// and this is the largest such sum over the cuts that are tried: all ops of the
// busiest lane, or of a long one the kMaxCuts that the least link time
// straddles.
int64_t PhasesBound(const Plan& plan, const CostProfile& profile);

inline constexpr int kMaxCuts = 48;

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_PHASES_H_

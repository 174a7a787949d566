// From a recorded order to a plan.
#ifndef COMMSCHED_SRC_RECORDING_FROZEN_PLAN_H_
#define COMMSCHED_SRC_RECORDING_FROZEN_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/plan.h"
#include "recording/recorded_order.h"

namespace commsched {

struct FrozenPlanSpec {
  RecordedOps recorded;
  const FrozenOrder* order = nullptr;
  const std::vector<bool>* early = nullptr;  // by declared op
  int world_size = 0;
  uint32_t flag_lane = 0;  // a compute lane that is the calling thread
  PlanOptions options;
  CostProfile profile;
};

// The op of a plan that is call i of the frozen order is OpId(i). Behind them
// come the compute op and the collective that tell all ranks of deviations.
struct FrozenPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<OpId> gated;     // collectives that wait until they are submitted
  OpId deviation;              // the compute op
  BufferId flag_in, flag_out;  // of one i32 each, BOUND; `flag_out` is the
                               // maximum of all ranks' `flag_in`
  // By op of the plan; launches of the step that must be due before a compute
  // op may begin.
  std::vector<uint32_t> due_needed;
};

// The declared groups, with one of the whole world behind them, the declared
// buffers, with the flags behind them, and the ops in frozen order.
//
// A collective that is not early goes when it is submitted. Where the plan
// would issue it before another one that is needed sooner, it is held back
// behind the op that the program called before it.
absl::StatusOr<FrozenPlan> PlanFrozen(const FrozenPlanSpec& spec);

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_FROZEN_PLAN_H_

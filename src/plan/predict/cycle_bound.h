#ifndef COMMSCHED_SRC_PLAN_PREDICT_CYCLE_BOUND_H_
#define COMMSCHED_SRC_PLAN_PREDICT_CYCLE_BOUND_H_

#include <cstdint>

#include "absl/types/span.h"
#include "plan/predict/playback.h"

namespace commsched {

// The largest delay / distance over all cycles of dependencies
// (docs/lower_bound.md): of the graphs' dependencies, the order of each compute
// lane, and of launches that several roles share or that send and receive,
// which start when all their members can.
int64_t LongestCycle(absl::Span<const PlayedRole> roles);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_CYCLE_BOUND_H_

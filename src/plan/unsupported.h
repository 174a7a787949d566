// What a graph may say and this planner, or what runs its plans, cannot do yet.
#ifndef COMMSCHED_SRC_PLAN_UNSUPPORTED_H_
#define COMMSCHED_SRC_PLAN_UNSUPPORTED_H_

#include "absl/status/status.h"
#include "graph/graph.h"

namespace commsched {

// kUnimplemented, naming the first op, and buffer, that cannot be run.
absl::Status CheckSupported(const Graph& graph);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_UNSUPPORTED_H_

// Pass 1: in which order the host calls, and in which launches go (I1).
#ifndef COMMSCHED_SRC_PLAN_ORDER_H_
#define COMMSCHED_SRC_PLAN_ORDER_H_

#include <cstdint>
#include <vector>

#include "graph/dependencies.h"
#include "graph/graph.h"

namespace commsched {

struct PlannedOrder {
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Compute ops in the planned host order: Dependencies::order
  // without the collectives.
  std::vector<OpId> host;
  // Collectives in key order.
  std::vector<OpId> collectives;
  // OpId -> index in `host`, or kNone for a collective.
  std::vector<uint32_t> host_position;
  // OpId of a collective -> number of host ops, in planned order, whose `after`
  // must have been called before it can be due; 0 if it needs none. Depends on
  // ops of the step directly or through other collectives.
  std::vector<uint32_t> ready;
  // OpId of a collective -> index in `host` of the first op of the step that
  // depends on it directly, or kNone.
  std::vector<uint32_t> first_need;
};

// Key order sorts collectives by
//   1. `ready`, ascending;
//   2. depth: collectives of the step on the longest chain that ends here;
//   3. the priority hint, descending;
//   4. position of the first consumer, of this step or else of the next;
//   5. id.
// `ready` leads because launches are issued strictly in key order: a launch
// that becomes due late holds up all that follow, so anything else in front
// would make an op wait for a producer that it does not depend on, or deadlock.
// (1, 2) alone make it a topological order of the distance-0 edges: an edge
// through a compute op raises `ready`, a direct one keeps or raises it and
// raises the depth. No pointer or hash order takes part.
PlannedOrder OrderOps(const Graph& graph, const Dependencies& dependencies);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_ORDER_H_

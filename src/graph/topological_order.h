#ifndef COMMSCHED_SRC_GRAPH_TOPOLOGICAL_ORDER_H_
#define COMMSCHED_SRC_GRAPH_TOPOLOGICAL_ORDER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/graph.h"

namespace commsched {

// `to` comes after `from`.
struct Precedence {
  OpId from;
  OpId to;
};

// All ops of the graph so that every precedence holds; of the ops that could be
// next, the one declared first is. kInvalidArgument, naming the ops of one
// cycle, if there is none. O(n log n + edges).
absl::StatusOr<std::vector<OpId>> TopologicalOrder(
    const Graph& graph, absl::Span<const Precedence> precedences);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_TOPOLOGICAL_ORDER_H_

#ifndef COMMSCHED_SRC_GRAPH_REGION_H_
#define COMMSCHED_SRC_GRAPH_REGION_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace commsched {

// A resolved region, in elements.
struct Extent {
  uint64_t offset = 0;
  uint64_t count = 0;
};

// Resolves the access for the member `rank` of its region's group. `counts` is
// the collective's uneven counts, or empty: it splits a shard (Graph::AddOp
// sees to it that a shard beside counts is of the collective's group) and does
// not touch other regions, of which the transfer uses the beginning.
Extent ResolveRegion(const Graph& graph, const Access& access, int rank,
                     const std::vector<uint64_t>& counts);

// Whether the two accesses may touch a common element on some rank. Two shards
// of one group are the same part on each rank; a shard against anything else is
// taken to overlap.
bool MayOverlap(const Graph& graph, const Access& a, const Access& b);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_REGION_H_

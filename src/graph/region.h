#ifndef COMMSCHED_SRC_GRAPH_REGION_H_
#define COMMSCHED_SRC_GRAPH_REGION_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace commsched {

// A resolved region, in elements: `rows` rows of `count`, the first at
// `offset`, each `stride` after the one before. Only a tile has several rows.
struct Extent {
  uint64_t offset = 0;
  uint64_t count = 0;
  uint64_t rows = 1;
  uint64_t stride = 0;  // at least `count` if there are several rows

  uint64_t elements() const { return rows * count; }
  // The element after the last.
  uint64_t end() const { return offset + (rows - 1) * stride + count; }
};

// Resolves the access for the member `rank` of its region's group. `counts` is
// the collective's uneven counts, or empty: it splits a shard (Graph::AddOp
// sees to it that a shard beside counts is of the collective's group) and does
// not touch other regions, of which the transfer uses the beginning.
Extent ResolveRegion(const Graph& graph, const Access& access, int rank,
                     const std::vector<uint64_t>& counts);

// The part of one side of a collective that holds `elements` elements, after
// parts that hold `before` together: a piece of a range; of a tile, columns of
// every row, which are packed row by row. Both numbers are multiples of the
// rows. So part p of n equal ones of side s is
//   PartOf(s, p * (s.elements() / n), s.elements() / n),
// and with uneven counts, of a side that is split or uses its beginning,
//   PartOf(s, sum of the counts before p, counts[p]).
Extent PartOf(const Extent& side, uint64_t before, uint64_t elements);

// The same elements, as one row if there are no gaps between the rows.
Extent Joined(const Extent& extent);

// Whether the two accesses may touch a common element on some rank. Two shards
// of one group are the same part on each rank; a shard against anything else is
// taken to overlap, and so are two tiles that lie in each other's span, have
// different strides and more than 256 rows each. All else is exact.
bool MayOverlap(const Graph& graph, const Access& a, const Access& b);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_REGION_H_

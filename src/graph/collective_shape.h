// What a collective reads and writes, by kind: which sides it has, how they are
// cut into parts, and what of it crosses a link.
#ifndef COMMSCHED_SRC_GRAPH_COLLECTIVE_SHAPE_H_
#define COMMSCHED_SRC_GRAPH_COLLECTIVE_SHAPE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "graph/graph.h"

namespace commsched {

// Whether the kind combines its inputs, so that `reduce_op` counts.
bool IsReducing(CollectiveKind kind);
// Whether one member is special, so that `root` counts.
bool IsRooted(CollectiveKind kind);
// Whether it moves data from one member to one other: kSend, kRecv.
bool IsPointToPoint(CollectiveKind kind);
bool HasInput(CollectiveKind kind);
bool HasOutput(CollectiveKind kind);
// Whether what travels is only moved, or summed by the receiver, so that a
// codec can change it on the way.
bool MayBeLossy(CollectiveKind kind);

// Whether a side has a part per rank.
bool SplitsInput(CollectiveKind kind);
bool SplitsOutput(CollectiveKind kind);
inline bool HasParts(CollectiveKind kind) {
  return SplitsInput(kind) || SplitsOutput(kind);
}
// In how many parts uneven counts are given, among `n` ranks: n, n x n of
// kAllToAll, or 1.
int64_t NumParts(CollectiveKind kind, int64_t n);

// A side that the collective has, the input if both; not of kBarrier.
inline const Access& AnySide(const CollectiveSpec& spec) {
  return HasInput(spec.kind) ? spec.input : spec.output;
}

// Elements that `access` covers on the rank with the largest part. `counts` are
// the collective's uneven counts, or empty.
uint64_t CountOf(const Graph& graph, const Access& access,
                 const std::vector<uint64_t>& counts);

// Elements of one of the equal parts of a collective, or of all of it if it has
// no parts; 0 of kBarrier.
uint64_t PartCount(const Graph& graph, const CollectiveSpec& spec);

// Share of the whole array that crosses a link direction of each of `n` ranks:
// (n-1)/n, twice that of kAllReduce, all of kSend and kRecv.
double LinkShare(CollectiveKind kind, int n);

// The elements that the busiest of `n` ranks sends to others, or receives from
// them, in a kAllToAll with `counts`.
double BusiestElements(absl::Span<const uint64_t> counts, int n);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_COLLECTIVE_SHAPE_H_

// Finds contents that come from nowhere.
#ifndef COMMSCHED_SRC_PLAN_UNWRITTEN_H_
#define COMMSCHED_SRC_PLAN_UNWRITTEN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace commsched {

// Whether all that ops read of OWNED buffers is written in the step, by
// whatever op: also by a later one, as it is then the step before whose
// contents are read, or by the reader itself if that computes. A collective in
// place is no writer of what it reads: it only passes that on.
//
// `positions`: by GroupId, where in the group the ranks are that run the graph;
// a shard is another part at each. Where nobody can tell, as with shards of
// several groups or tiles of several strides in one buffer, it is taken to be
// written. O(accesses) as long as what is read is written as a whole, else
// O(n log n) in the accesses to the buffer, for each position.
//
// kInvalidArgument, naming the op, the buffer and the elements.
absl::Status CheckOwnedReads(const Graph& graph,
                             const std::vector<std::vector<int>>& positions);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_UNWRITTEN_H_

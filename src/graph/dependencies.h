#ifndef COMMSCHED_SRC_GRAPH_DEPENDENCIES_H_
#define COMMSCHED_SRC_GRAPH_DEPENDENCIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/graph.h"

namespace commsched {

enum class Hazard : uint8_t {
  kExplicit,
  kReadAfterWrite,
  kWriteAfterRead,
  kWriteAfterWrite,
};

// `to` of step t + distance must not start before `from` of step t is complete.
// Small, as a graph has several per op.
struct Dependency {
  OpId from;
  OpId to;
  uint8_t distance = 0;  // 0: within a step; 1: loop-carried
  Hazard hazard = Hazard::kExplicit;
  BufferId buffer;  // invalid if kExplicit
};

// Every hazard has an edge (I2): all conflicts between declared accesses, in
// declared order within the step and from each step to the next, are ordered
// by a path of the result; edges that other edges of the same buffer imply are
// left out (a reader depends on the last writers of what it reads, a writer on
// the last writers and the readers since). Sorted by (to, from, distance);
// at most one per triple, of the first hazard in the order read-after-write,
// write-after-read, write-after-write, explicit.
//
// Regions conflict as MayOverlap() says, but that in a buffer with tiles of
// several strides, or with so many that they cut it into more than
// TileGrid::kMaxCells cells, a tile counts as the range from its first element
// to its last. An op that writes in every step what
// nobody reads depends on itself, with distance 1.
//
// The op that begins a buffer of a place group takes over the memory of the
// buffer before it: it depends on the last users of that one, as a writer does
// on readers (kWriteAfterRead of the buffer that begins); the first of the
// group, with distance 1, on those of the last.
struct Dependencies {
  std::vector<Dependency> edges;
  // Where the edges into each op begin, by OpId; last, where all end.
  std::vector<uint32_t> first;
  // A topological order of the distance-0 edges: the declared order wherever
  // that is one. Position of each op in it.
  std::vector<OpId> order;
  std::vector<uint32_t> position;

  absl::Span<const Dependency> Into(OpId op) const {
    const uint32_t begin = first[op.value()];
    return {edges.data() + begin, first[op.value() + 1] - begin};
  }
};

// Fails with kInvalidArgument, naming the ops, if distance-0 edges close a
// cycle, or if buffers of a place group overlap in time (CheckPlaceGroups).
// O((accesses + parts) log n + edges), where parts counts, per access,
// the pieces of its region that were last written or read by different ops. An
// access to a buffer with tiles visits all cells of its region: for c columns
// of the same rows, and the whole, at most c + 1.
absl::StatusOr<Dependencies> InferDependencies(const Graph& graph);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_DEPENDENCIES_H_

#ifndef COMMSCHED_SRC_GRAPH_GRAPH_H_
#define COMMSCHED_SRC_GRAPH_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/types.h"

namespace commsched {

// An explicit edge: `to` of step t + distance starts after `from` of step t.
struct ExplicitEdge {
  OpId from;
  OpId to;
  int distance = 0;  // 0 or 1

  friend bool operator==(const ExplicitEdge&, const ExplicitEdge&) = default;
};

// What must happen in one step: plain data with a checked way in. Every Add
// validates completely before it changes anything; an error names the object,
// the value and the limit.
//
// Thread-compatible.
class Graph {
 public:
  static constexpr uint64_t kMaxOps = uint64_t{1} << 24;
  static constexpr uint64_t kMaxBuffers = kMaxOps;
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr int kMaxGroupSize = 4096;
  static constexpr uint32_t kMaxLanes = 16;
  // This is about 11 days: sums of costs stay far from the end of int64_t.
  static constexpr int64_t kMaxCostNs = 1'000'000'000'000'000;

  absl::Status Reserve(uint64_t num_ops);
  absl::StatusOr<GroupId> AddGroup(absl::string_view name, int size);
  absl::StatusOr<BufferId> AddBuffer(Buffer buffer);
  // Late-bound buffers are bound by each collective that uses one, when the
  // host submits it (a recording): any op may access them, in any order. Before
  // the first op.
  void BindLateAtSubmit() { late_bound_writers_.try_emplace(BufferId()); }
  bool late_at_submit() const {
    return late_bound_writers_.contains(BufferId());
  }
  // `op.kind` decides which spec counts; what the kind does not use is reset to
  // its default. For a collective, `op.accesses` is ignored on the way in and
  // made from input and output. A name is 1 to 256 bytes of UTF-8 without NUL,
  // here and for groups and buffers.
  //
  // A collective with uneven counts takes a SHARD in one place only: of its own
  // group, on the side that differs per rank (the output of REDUCE_SCATTER, the
  // input of ALL_GATHER); it is then split by the counts. A fixed region there
  // must hold the largest count, and the other side is the counts' sum exactly.
  // ALL_TO_ALL with counts needs regions that hold every row's and column's
  // sum. A tile that is split, or of which counts use the beginning, is split
  // by columns: its row must be as many equal parts, every count a multiple of
  // its rows.
  //
  // A late-bound buffer is accessed as a whole only; the first op that does is
  // a compute op that writes and does not read it, and no other compute op
  // writes it: its address arrives with that op's `after`, unless it is bound
  // at submit. Beside it a collective takes no tile.
  absl::StatusOr<OpId> AddOp(Op op);
  // Empties an op, or a buffer that no op accesses: its id stays taken, its
  // name is free again, and it has none. An empty op is a compute op without
  // accesses. Of a graph without explicit edges.
  void ClearOp(OpId id);
  void ClearBuffer(BufferId id);
  bool IsClear(OpId id) const { return op(id).name.empty(); }
  bool IsClear(BufferId id) const { return buffer(id).name.empty(); }
  absl::Status AddEdge(ExplicitEdge edge);
  // Adds all edges or none. Takes O(1) per edge as long as all edges follow the
  // declared order, and else one pass over the graph per call, which is why an
  // import adds its edges together.
  absl::Status AddEdges(absl::Span<const ExplicitEdge> edges);

  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<ExplicitEdge>& edges() const { return edges_; }
  const Op& op(OpId id) const { return ops_[id.value()]; }
  // The same as op(id).kind. Ops are large, and passes that ask for no more are
  // many.
  OpKind kind(OpId id) const { return kinds_[id.value()]; }
  const Buffer& buffer(BufferId id) const { return buffers_[id.value()]; }
  const Group& group(GroupId id) const { return groups_[id.value()]; }

  // The compute op that writes a late-bound buffer; invalid before it is added,
  // of other buffers, and if they are bound at submit.
  OpId LateBoundWriter(BufferId id) const;
  // Whether any op accesses a tile.
  bool has_tiles() const { return has_tiles_; }
  bool has_point_to_point() const { return has_point_to_point_; }
  // Whether any buffer is in a place group.
  bool has_place_groups() const { return has_place_groups_; }

  absl::StatusOr<OpId> FindOp(absl::string_view name) const;
  absl::StatusOr<BufferId> FindBuffer(absl::string_view name) const;
  absl::StatusOr<GroupId> FindGroup(absl::string_view name) const;

  friend bool operator==(const Graph& a, const Graph& b) {
    return a.groups_ == b.groups_ && a.buffers_ == b.buffers_ &&
           a.ops_ == b.ops_ && a.edges_ == b.edges_;
  }

 private:
  absl::Status CheckExplicitOrder(absl::Span<const ExplicitEdge> more) const;
  // Keeps what the queries above answer.
  void NoteOp(OpId id);

  std::vector<Group> groups_;
  std::vector<Buffer> buffers_;
  std::vector<Op> ops_;
  std::vector<OpKind> kinds_;        // by OpId
  std::vector<ExplicitEdge> edges_;  // not those in Op::after
  absl::flat_hash_map<std::string, OpId> op_names_;
  absl::flat_hash_map<std::string, BufferId> buffer_names_;
  absl::flat_hash_map<std::string, GroupId> group_names_;
  // Whether a distance-0 edge runs against the declared order.
  bool has_backward_edge_ = false;
  bool has_tiles_ = false;
  bool has_point_to_point_ = false;  // any send or receive
  bool has_place_groups_ = false;
  // If they are bound at submit, the invalid id alone, and no writer.
  absl::flat_hash_map<BufferId, OpId> late_bound_writers_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_GRAPH_H_

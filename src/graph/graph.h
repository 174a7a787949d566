#ifndef COMMSCHED_SRC_GRAPH_GRAPH_H_
#define COMMSCHED_SRC_GRAPH_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/types.h"

namespace commsched {

// An explicit edge: `to` of step t + distance starts after `from` of step t.
struct ExplicitEdge {
  OpId from;
  OpId to;
  int distance = 0;  // 0 or 1
};

// What must happen in one step: plain data with a checked way in. Every Add
// validates completely before it changes anything; an error names the object,
// the value and the limit.
//
// Thread-compatible.
class Graph {
 public:
  static constexpr uint64_t kMaxOps = uint64_t{1} << 24;
  static constexpr int kMaxGroupSize = 4096;
  static constexpr uint32_t kMaxLanes = 16;

  absl::Status Reserve(uint64_t num_ops);
  absl::StatusOr<GroupId> AddGroup(absl::string_view name, int size);
  absl::StatusOr<BufferId> AddBuffer(Buffer buffer);
  // `op.kind` decides which spec counts. For a collective, `op.accesses` is
  // ignored on the way in and made from input and output.
  absl::StatusOr<OpId> AddOp(Op op);
  absl::Status AddEdge(ExplicitEdge edge);

  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<ExplicitEdge>& edges() const { return edges_; }
  const Op& op(OpId id) const { return ops_[id.value()]; }
  const Buffer& buffer(BufferId id) const { return buffers_[id.value()]; }
  const Group& group(GroupId id) const { return groups_[id.value()]; }

  absl::StatusOr<OpId> FindOp(absl::string_view name) const;

 private:
  std::vector<Group> groups_;
  std::vector<Buffer> buffers_;
  std::vector<Op> ops_;
  std::vector<ExplicitEdge> edges_;  // not those in Op::after
  absl::flat_hash_map<std::string, OpId> op_names_;
  absl::flat_hash_map<std::string, BufferId> buffer_names_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_GRAPH_H_

#ifndef COMMSCHED_SRC_PLAN_PLAN_H_
#define COMMSCHED_SRC_PLAN_PLAN_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/strong_id.h"
#include "graph/dependencies.h"
#include "graph/graph.h"
#include "plan/launch_reason.h"
#include "plan/merge_report.h"
#include "plan/options.h"
#include "plan/place_group_report.h"
#include "plan/priority_report.h"

namespace commsched {

struct LaunchTag;
// Dense from 0 in key order: the LaunchId is the global key (I1). Every rank
// issues launches in increasing id, step after step.
using LaunchId = StrongId<LaunchTag>;

// How a launch carries its members.
enum class Way : uint8_t {
  kSingle,   // one member
  kInPlace,  // contiguous members as one collective, no copy
  kGroup,    // one backend call with a list of members, no copy
  kPack,     // one collective on staging memory, a copy in and a copy out;
             // also a single one that is a tile or travels through a codec
};

// A node of the plan: a compute op, or a launch.
struct NodeRef {
  enum class Kind : uint8_t { kOp, kLaunch };
  Kind kind = Kind::kOp;
  uint32_t index = 0;  // OpId or LaunchId value
  friend bool operator==(const NodeRef&, const NodeRef&) = default;
};

enum class WaitCause : uint8_t { kHazard, kArena, kWindow, kSerial };

// The node that holds this starts only after `producer`, of `distance` steps
// before, is complete. In the first step waits of distance 1 are satisfied.
struct Wait {
  NodeRef producer;
  int distance = 0;
  WaitCause cause = WaitCause::kHazard;
};

// Most are short: room for them in the node or launch, which a plan has many
// of, saves an allocation each.
using OpIdList = absl::InlinedVector<OpId, 4>;
using LaunchIdList = absl::InlinedVector<LaunchId, 4>;
using WaitList = absl::InlinedVector<Wait, 2>;

// A part of a collective that was split (plan/partition.h): of each of its
// parts, the elements [offset, offset + count). A launch of a piece has one
// member. All pieces of a collective have all of its dependencies.
struct Piece {
  uint32_t index = 0;
  uint32_t of = 1;  // 1: not split
  uint64_t offset = 0;
  uint64_t count = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

inline constexpr uint64_t kKeyStride = 64;

struct Launch {
  // Sends and receives of one pipeline tick are one launch of kind kSend; what
  // each member is says its op.
  CollectiveKind kind = CollectiveKind::kAllReduce;
  GroupId group;
  DType dtype = DType::kF32;
  ReduceOp reduce_op = ReduceOp::kSum;
  int root = 0;
  Way way = Way::kSingle;
  uint32_t lane = 0;  // communication lane
  // Collectives, in key order; of kInPlace in order of address.
  OpIdList members;
  Piece piece;
  // Its place in the one order over all roles (I1): grows with the LaunchId,
  // and all members of a collective have the same. Of a pipeline tick, that of
  // its first member. Collectives are kKeyStride apart, which leaves room for
  // pieces.
  uint64_t key = 0;
  bool coded = false;           // travels through PlanOptions::codec
  uint64_t payload_bytes = 0;   // sum of max(input, output) over members
  uint64_t staging_offset = 0;  // kPack: input staging in the arena
  uint64_t staging_bytes = 0;   // kPack: input part then output part
  uint64_t staging_output = 0;  // kPack: offset of the output part
  WaitList waits;               // of compute ops and of earlier launches
  // Compute ops of this step that must have had their `after` before the launch
  // is due: all same-step op producers of any member, implied or not. Sorted.
  OpIdList producers;
  LaunchReason reason;  // in words: ReasonText()
};

struct ComputeNode {
  OpId op;            // compute op
  uint32_t lane = 0;  // compute lane
  WaitList waits;     // event waits that the lane and others do not imply
  // Same-step compute dependencies, implied or not: host-checked in `before`.
  OpIdList after;
  // Launches (this step) that this op needs, implied or not; the largest is
  // what must be due. Empty vector: none.
  LaunchIdList needs;

  // So many launches of the step must be due before the op may begin.
  uint32_t DueNeeded() const {
    uint32_t due = 0;
    for (LaunchId launch : needs) due = std::max(due, launch.value() + 1);
    for (const Wait& wait : waits) {
      if (wait.producer.kind != NodeRef::Kind::kLaunch) continue;
      if (wait.distance == 0) due = std::max(due, wait.producer.index + 1);
    }
    return due;
  }
};

// An owned buffer's place.
struct Placement {
  BufferId buffer;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// What the plans of several roles have in common, as words, and its hash.
struct SharedLines {
  std::vector<std::string> lines;
  std::array<uint8_t, 16> hash = {};
};

// The immutable result of planning, one role. Shared by sessions.
struct Plan {
  std::shared_ptr<const Graph> graph;
  PlanOptions options;
  CostProfile profile;
  Dependencies dependencies;         // of the graph, before coalescing
  std::vector<ComputeNode> nodes;    // in planned host order
  std::vector<uint32_t> node_of_op;  // OpId -> index in nodes, or kNone
  std::vector<Launch> launches;      // in key order
  // OpId -> launch, or invalid. Of a split collective its last piece: on one
  // lane, the last to complete.
  std::vector<LaunchId> launch_of_op;
  // The pieces of each split collective, in key order. Sorted by op.
  std::vector<std::pair<OpId, std::vector<LaunchId>>> pieces;
  std::vector<uint32_t> due_after;    // launch -> number of nodes (host order)
                                      // whose `after` precedes its being due
  std::vector<Placement> placements;  // owned buffers
  uint64_t arena_bytes = 0;
  uint32_t num_compute_lanes = 1;
  // options.num_comm_lanes, and one for sends and receives if there are any:
  // the last.
  uint32_t num_comm_lanes = 1;
  uint64_t num_waits_implied = 0;
  PriorityReport priority;
  MergeReport merging;
  PlaceGroupReport place_groups;
  std::array<uint8_t, 16> fingerprint = {};
  // By GroupId, the hash of the launches on that group, in key order. It is
  // equal on all members of the group, whatever their roles.
  std::vector<std::array<uint8_t, 16>> group_fingerprints;
  // By GroupId, what goes from member to member in all roles, one line per
  // send.
  std::vector<std::shared_ptr<const SharedLines>> group_sends;
  uint32_t role = 0;  // of the roles that were planned together
  uint32_t num_roles = 1;

  // The launches that carry collective `op`, in key order.
  absl::Span<const LaunchId> LaunchesOf(OpId op) const;

  static constexpr uint32_t kNone = ~uint32_t{0};
};

inline absl::Span<const LaunchId> Plan::LaunchesOf(OpId op) const {
  const LaunchId& last = launch_of_op[op.value()];
  if (!last.valid()) return {};
  if (launches[last.value()].piece.of == 1) return {&last, 1};
  auto found = std::lower_bound(
      pieces.begin(), pieces.end(), op,
      [](const auto& entry, OpId id) { return entry.first < id; });
  return found->second;
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PLAN_H_

#ifndef COMMSCHED_SRC_PLAN_VERIFY_HAPPENS_BEFORE_H_
#define COMMSCHED_SRC_PLAN_VERIFY_HAPPENS_BEFORE_H_

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace commsched {

// The nodes of a step in one order that agrees with host order, key order and
// with when launches become due. Worked out by the verifier from nodes,
// launches and producers alone.
struct Witness {
  std::vector<NodeRef> nodes;
  std::vector<uint32_t> of_op;  // OpId, of any kind -> position
  std::vector<uint32_t> of_launch;

  uint32_t PositionOf(NodeRef node) const {
    return node.kind == NodeRef::Kind::kOp ? of_op[node.index]
                                           : of_launch[node.index];
  }
};

// What the waits of a plan order (docs/happens_before.md), answered for pairs
// of nodes at most one step apart. Part of the verifier: it takes the plan as
// it finds it and shares no code with the passes.
//
// Every wait, `after` and completion order of the plan must run forward in the
// witness.
//
// Exact. Of launches a vector clock knows all there is to know, as their lanes
// complete in order. Of compute ops it knows a prefix of each lane; an op
// beyond that prefix is looked for by a search backwards from the later node,
// which visits only nodes between the two.
//
// Thread-compatible.
class HappensBefore {
 public:
  HappensBefore(const Plan& plan, const Witness& witness);

  // Whether the node at position `from`, `distance` (0 or 1) steps before the
  // node at `to`, is always complete when that one starts.
  bool Ordered(uint32_t from, uint32_t to, int distance) {
    if (distance == 0 && from >= to) return false;
    const uint32_t from_step = 1 - static_cast<uint32_t>(distance);
    const uint32_t known = Start(to)[nodes_[from].lane];
    if (known >= CountOf(from_step, from)) return true;
    return IsCompute(from) && Search(from_step, from, to);
  }

  // Launches of communication lane `lane` that are complete when the launch at
  // `to` starts: of the step before and of its own step together, counted from
  // the first of the step before.
  uint32_t LaunchesKnown(uint32_t to, uint32_t lane) const;

 private:
  struct Node {
    uint32_t lane = 0;                // compute lanes, then communication lanes
    uint32_t position = 0;            // in its lane
    uint32_t previous = Plan::kNone;  // launches: the one before on the lane
  };

  bool IsCompute(uint32_t p) const { return nodes_[p].lane < num_compute_; }
  uint32_t CountOf(uint32_t step, uint32_t p) const {
    const Node& node = nodes_[p];
    return step * lane_size_[node.lane] + node.position + 1;
  }
  const uint32_t* Start(uint32_t p) const {
    return &start_[size_t{p} * num_lanes_];
  }
  const uint32_t* Complete(uint32_t step, uint32_t p) const {
    return &complete_[(step * nodes_.size() + p) * num_lanes_];
  }
  absl::Span<const Wait> WaitsOf(uint32_t p) const;

  void PlaceInLanes();
  void Visit(uint32_t step, uint32_t p);
  void Join(const uint32_t* known);

  // Calls visit(step, position) for every node whose completion precedes the
  // start of (step, p) by one rule; nodes before step 0 are left out.
  template <typename Visitor>
  void ForEachBefore(uint32_t step, uint32_t p, Visitor visit) const;
  bool Search(uint32_t from_step, uint32_t from, uint32_t to);

  const Plan& plan_;
  const Witness& witness_;
  const uint32_t num_compute_;
  const uint32_t num_lanes_;
  std::vector<Node> nodes_;                   // by position
  std::vector<std::vector<uint32_t>> lanes_;  // positions
  std::vector<uint32_t> lane_size_;
  std::vector<uint32_t> complete_;  // by step, position, lane
  std::vector<uint32_t> start_;     // of step 1, by position, lane
  std::vector<uint32_t> lane_end_;  // by step, lane, lane
  uint32_t* clock_ = nullptr;       // of the node being visited, in complete_

  std::vector<uint32_t> seen_;       // search number, by step and position
  std::vector<uint32_t> lane_seen_;  // search number, by compute lane
  uint32_t search_ = 0;
  std::vector<uint32_t> stack_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_HAPPENS_BEFORE_H_

#ifndef COMMSCHED_SRC_PLAN_SEQUENCE_H_
#define COMMSCHED_SRC_PLAN_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace commsched {

// All nodes of a step in one order: compute nodes in host order, each launch
// right before the first of them that may follow its being due. Every edge of
// distance 0 that the passes make runs forward in it, and every launch is due
// after nodes that come earlier only, so it is the witness that the plan does
// not deadlock.
struct Sequence {
  std::vector<NodeRef> nodes;
  std::vector<uint32_t> of_op;      // compute op or collective -> position
  std::vector<uint32_t> of_launch;  // LaunchId -> position

  uint32_t PositionOf(NodeRef node) const {
    return node.kind == NodeRef::Kind::kOp ? of_op[node.index]
                                           : of_launch[node.index];
  }
};

// Uses nodes, launches (members), launch_of_op and due_after of `plan`.
Sequence SequenceOf(const Plan& plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_SEQUENCE_H_

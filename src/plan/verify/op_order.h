// Part of verify_parts.h: what is ordered, op by op.
#ifndef COMMSCHED_SRC_PLAN_VERIFY_OP_ORDER_H_
#define COMMSCHED_SRC_PLAN_VERIFY_OP_ORDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/verify/happens_before.h"

namespace commsched {

// HappensBefore asked about ops: a collective that was split is all its pieces.
//
// Thread-compatible. All that it is made of outlives it.
class OpOrder {
 public:
  OpOrder(const Plan& plan, const Witness& witness, HappensBefore* order)
      : plan_(plan), graph_(*plan.graph), witness_(witness), order_(*order) {}

  // Whether `from`, `distance` (0 or 1) steps before `to`, is always complete
  // when `to` starts.
  bool Ordered(OpId from, OpId to, int distance) {
    if (plan_.pieces.empty()) {
      return order_.Ordered(witness_.of_op[from.value()],
                            witness_.of_op[to.value()], distance);
    }
    return AllOrdered(from, to, distance);
  }

  // ": nothing makes 'b' wait for 'a' of the step before; the edge ... is
  // missing", for messages.
  std::string Missing(OpId from, OpId to, int distance) const;

 private:
  bool AllOrdered(OpId from, OpId to, int distance);
  // There are several for a split collective, one per piece.
  std::vector<uint32_t> PositionsOf(OpId op) const;
  NodeRef NodeOf(OpId op) const;

  const Plan& plan_;
  const Graph& graph_;
  const Witness& witness_;
  HappensBefore& order_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_OP_ORDER_H_

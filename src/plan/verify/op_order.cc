#include "plan/verify/op_order.h"

#include "absl/strings/str_cat.h"
#include "plan/verify/verify_parts.h"

namespace commsched {

bool OpOrder::AllOrdered(OpId from, OpId to, int distance) {
  for (uint32_t a : PositionsOf(from)) {
    for (uint32_t b : PositionsOf(to)) {
      if (!order_.Ordered(a, b, distance)) return false;
    }
  }
  return true;
}

std::vector<uint32_t> OpOrder::PositionsOf(OpId op) const {
  const auto launches = plan_.LaunchesOf(op);
  if (launches.empty()) return {witness_.of_op[op.value()]};
  std::vector<uint32_t> positions;
  for (LaunchId launch : launches) {
    positions.push_back(witness_.of_launch[launch.value()]);
  }
  return positions;
}

std::string OpOrder::Missing(OpId from, OpId to, int distance) const {
  return absl::StrCat(": nothing makes '", graph_.op(to).name, "' wait for '",
                      graph_.op(from).name, "'",
                      distance == 1 ? " of the step before" : "", "; the edge ",
                      DescribeNode(plan_, NodeOf(from)), " -> ",
                      DescribeNode(plan_, NodeOf(to)), " of distance ",
                      distance, " is missing");
}

NodeRef OpOrder::NodeOf(OpId op) const {
  return witness_.nodes[witness_.of_op[op.value()]];
}

}  // namespace commsched

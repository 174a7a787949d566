// Pass 2: which collectives travel together.
#ifndef COMMSCHED_SRC_PLAN_COALESCE_H_
#define COMMSCHED_SRC_PLAN_COALESCE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/dependencies.h"
#include "graph/graph.h"
#include "plan/order.h"
#include "plan/plan.h"

namespace commsched {

// Merges neighbours in key order, greedily, into launches: kind, group, dtype,
// reduction, root, members, way, weight, staging size and reason are filled in;
// lane, waits and places are left to later passes.
//
// A collective joins the launch before it if
//   - kind, group, dtype and, where they count, reduction and root are equal;
//   - the launch stays within options.coalesce_bytes of weight, and within
//     options.partition_bytes, if set: what would be too large to stay whole is
//     not put together;
//   - it depends on no member directly. It cannot do so through another node: a
//     collective between them would lie between them in key order, and a
//     compute op is excluded by the next rule;
//   - the launch stays due before the first op that needs a member: no
//     producer of the newcomer comes, in host order, at or after it.
// Members that conflict in some buffer depend on one another, so their regions
// need no further test. options.policy may decide otherwise: it is asked for
// every two neighbours, and bound by all of these but the limits.
//
// Ways: in place if the members' inputs, and their outputs, are the pieces of
// one range of one buffer (all-reduce, broadcast, reduce; members are then in
// order of address), else the cheaper of a list and packing.
//
// kInvalidArgument, naming policy and ops, if a policy merges what must stay
// apart.
absl::StatusOr<std::vector<Launch>> Coalesce(const Graph& graph,
                                             const Dependencies& dependencies,
                                             const PlannedOrder& order,
                                             const PlanOptions& options,
                                             const CostProfile& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_COALESCE_H_

// Pass 2: which collectives travel together.
#ifndef COMMSCHED_SRC_PLAN_COALESCE_H_
#define COMMSCHED_SRC_PLAN_COALESCE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/dependencies.h"
#include "graph/graph.h"
#include "plan/launch_reason.h"
#include "plan/merge_clock.h"
#include "plan/order.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// Merges neighbours in key order, greedily, into launches: kind, group, dtype,
// reduction, root, members, way, payload, staging size and reason are filled
// in; lane, waits and places are left to later passes.
//
// A collective joins the launch before it if
//   - kind, group, dtype and, where they count, reduction and root are equal;
//   - the launch stays within options.coalesce_bytes of payload, and within
//     options.partition_bytes, if set: what would be too large to stay whole is
//     not put together; or, by cost, `clock` says that it saves more than it
//     costs (merge_by_cost.h);
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
// A collective of several roles joins a launch only if it may in all of them,
// so that all have the same launches; then the way is one that all can go, and
// collectives with tiles or late-bound sides, which leave less choice, stay
// apart. Their policy is asked as the first of the roles would ask.
//
// A send or receive joins the open launch of its own role, whatever its peer
// does, as members of such a launch (a pipeline tick) progress independently.
// It joins if group and dtype are equal, no member is one that it depends on,
// and it neither delays the launch nor keeps its first consumer waiting:
//   - it is due no later than the launch;
//   - it is needed no later than the launch.
// Limits and policy have no say, as nothing is gained by keeping it apart. A
// send and its receive that are of one role always go together: neither could
// complete before the other is issued.
//
// Such pipeline ticks cannot deadlock. Let all events of keys below k be
// complete; then so is that of key k. For in each role that takes part it lies
// in a launch whose first event has a key of at most k, so all launches before
// that one are complete; the launch is due after ops of its role that need
// launches of smaller keys only (order.h), and of those none is the launch
// itself, which is due before any op that needs it. So it is issued on both
// sides. This holds for any window that admits a launch once all before it are
// complete, hence the caps may count pipeline ticks like other launches.
//
// kInvalidArgument, naming policy and ops, if a policy merges what must stay
// apart. The result is by role. `clock`: new, or null, if only limits count.
// `off`: why what may be merged is not where the limit is 0; if that is not
// kMergingOff, what may not has its own reason.
absl::StatusOr<std::vector<std::vector<Launch>>> Coalesce(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, const JobOrder& job,
    const PlanOptions& options, MergeClock* clock = nullptr,
    LaunchReason::End off = LaunchReason::End::kMergingOff);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_COALESCE_H_

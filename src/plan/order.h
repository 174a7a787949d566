// Pass 1: in which order the host calls, and in which launches go (I1).
#ifndef COMMSCHED_SRC_PLAN_ORDER_H_
#define COMMSCHED_SRC_PLAN_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/dependencies.h"
#include "graph/graph.h"
#include "plan/roles.h"

namespace commsched {

struct PlannedOrder {
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Compute ops in the planned host order: Dependencies::order
  // without the collectives.
  std::vector<OpId> host;
  // Collectives in key order.
  std::vector<OpId> collectives;
  // OpId -> index in `host`, or kNone for a collective.
  std::vector<uint32_t> host_position;
  // OpId of a collective -> number of host ops, in planned order, whose `after`
  // must have been called before it can be due; 0 if it needs none. Depends on
  // ops of the step directly or through other collectives.
  std::vector<uint32_t> ready;
  // OpId of a collective -> index in `host` of the first op of the step that
  // depends on it directly, or kNone.
  std::vector<uint32_t> first_need;
};

// Key order sorts collectives by
//   1. `ready`, ascending;
//   2. depth: collectives of the step on the longest chain that ends here;
//   3. the priority hint, descending;
//   4. position of the first consumer, of this step or else of the next;
//   5. id.
// `ready` leads because launches are issued strictly in key order: a launch
// that becomes due late holds up all that follow, so anything else in front
// would make an op wait for a producer that it does not depend on, or deadlock.
// (1, 2) alone make it a topological order of the distance-0 edges: an edge
// through a compute op raises `ready`, a direct one keeps or raises it and
// raises the depth. No pointer or hash order takes part.
PlannedOrder OrderOps(const Graph& graph, const Dependencies& dependencies);

// All but the order of the collectives, and what that goes by; by OpId.
struct HostOrder {
  PlannedOrder order;
  std::vector<uint32_t> depth;
  std::vector<uint32_t> consumer;
};
HostOrder OrderHost(const Graph& graph, const Dependencies& dependencies);

// The orders of all roles, and the one that they are parts of.
struct JobOrder {
  std::vector<PlannedOrder> roles;
  // Events of communication in key order: a collective with all roles that take
  // part, or a send and its receive. Those of event e are
  // ops[first[e]] .. ops[first[e + 1] - 1], by role and id.
  std::vector<RoleOp> ops;
  std::vector<uint32_t> first = {0};

  uint32_t num_events() const {
    return static_cast<uint32_t>(first.size()) - 1;
  }
  absl::Span<const RoleOp> Event(uint32_t e) const {
    return {&ops[first[e]], first[e + 1] - first[e]};
  }
};

// One graph over the ops of all roles has an edge for every dependency of
// distance 0 and one from each op of a role's host order to the next; what
// meets is one node of it. Any topological order of that graph frees the job of
// deadlocks: let an op x of some role need a launch that goes at key k, and let
// x be called before the last producer of another launch, of key j. Then a path
// leads from the first launch to x, on along the host order to that producer,
// and to the second launch; hence k < j, and x never waits for a launch behind
// one that only a later call makes due.
//
// Events go by
//   1. the earliest start that the cost model gives them in that graph;
//   2. depth: events of the step on the longest chain without a compute op;
//   3. the priority hint, descending;
//   4. position of the first consumer, of this step or else of the next;
//   5. role and id of the first op.
// (1, 2) alone make it a topological order, as a compute op takes 1 ns at
// least. Of one role the costs do not count: each compute op takes one unit and
// communication none, which makes the start OrderOps()'s `ready`.
//
// `dependencies` by role. kInvalidArgument, naming the ops of a cycle role by
// role, if there is one: called in those orders the job would deadlock.
absl::StatusOr<JobOrder> OrderJob(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies,
    const Meetings& meetings);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_ORDER_H_

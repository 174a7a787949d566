// Several graphs that are planned together: who meets whom.
#ifndef COMMSCHED_SRC_PLAN_ROLES_H_
#define COMMSCHED_SRC_PLAN_ROLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace commsched {

// Times of all roles together stay within int64_t.
inline constexpr size_t kMaxRoles = 512;

// Ranks whose graphs are equal and that take the same place in the job: each
// stage of a pipeline is a role of its own, also where two stages' graphs are
// the same.
struct RoleSpec {
  const Graph* graph = nullptr;  // outlives the call
  // By GroupId, the role at each position of the group; an empty entry, or none
  // at all, means that all its members are of this role. A group of two graphs
  // is the same if name, size and roles are.
  std::vector<std::vector<uint32_t>> role_of_member;
  CostProfile profile;
  // If set, it is `graph`, nobody changes it any more, and the plan keeps it
  // instead of a copy.
  std::shared_ptr<const Graph> shared = nullptr;
};

// An op of one role.
struct RoleOp {
  uint32_t role = 0;
  OpId op;
  friend bool operator==(const RoleOp&, const RoleOp&) = default;
};

// Which ops are one event of the job, as they cannot complete without each
// other: a collective on a group of several roles is one op in each of them,
// and a send and its receive are two, of two roles or of one.
class Meetings {
 public:
  Meetings() = default;
  // Nobody meets anybody.
  explicit Meetings(absl::Span<const RoleSpec> roles);

  // All ops of all roles, numbered from 0: those of role 0 first.
  uint32_t num_ops() const { return first_.back(); }
  uint32_t NumberOf(RoleOp op) const { return first_[op.role] + op.op.value(); }
  RoleOp OpOf(uint32_t number) const;
  // The same for all that meet: the least of their numbers.
  uint32_t EventOf(RoleOp op) const { return EventOf(NumberOf(op)); }
  uint32_t EventOf(uint32_t number) const { return event_[number]; }

  void Join(RoleOp a, RoleOp b);
  // Call it after the last Join and before the first EventOf.
  void Settle();

 private:
  std::vector<uint32_t> first_ = {0};  // by role, and the end
  std::vector<uint32_t> event_;        // by number; a forest until settled
};

// Finds out who meets whom. On a group of several roles a collective is met by
// that of the same name in every other role, and must agree with it in kind,
// dtype, reduction, root and counts. The k-th send from position p to q of a
// group, in declared order, is met by the k-th receive at q from p, and must
// agree with it in dtype and count. O(n log n) in the ops of all roles.
//
// kInvalidArgument, naming roles, ops and group: too many roles, a group whose
// roles are not those of another role's group of that name, a collective that
// a role lacks, any disagreement, a send or receive that nobody meets.
absl::StatusOr<Meetings> FindMeetings(absl::Span<const RoleSpec> roles);

// The roles at the positions of `group`, as RoleSpec::role_of_member means it.
std::vector<uint32_t> RolesOfGroup(absl::Span<const RoleSpec> roles,
                                   uint32_t role, GroupId group);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_ROLES_H_

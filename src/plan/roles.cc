#include "plan/roles.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

// Sends or receives of one role on one group that have one peer offset.
struct Route {
  uint32_t role = 0;
  GroupId group;
  CollectiveKind kind = CollectiveKind::kSend;
  uint32_t offset = 0;  // of the peer, modulo the size
  bool operator<(const Route& other) const {
    return std::tie(role, group, kind, offset) <
           std::tie(other.role, other.group, other.kind, other.offset);
  }
};

class MeetingFinder {
 public:
  explicit MeetingFinder(absl::Span<const RoleSpec> roles)
      : roles_(roles), meetings_(roles) {}

  absl::StatusOr<Meetings> Run() {
    for (uint32_t r = 0; r < roles_.size(); ++r) {
      RETURN_IF_ERROR(ReadGroups(r));
    }
    for (uint32_t r = 0; r < roles_.size(); ++r) {
      RETURN_IF_ERROR(FindSharedGroups(r));
      CollectOps(r);
    }
    RETURN_IF_ERROR(MeetCollectives());
    RETURN_IF_ERROR(MeetPairs());
    meetings_.Settle();
    return std::move(meetings_);
  }

 private:
  const Graph& graph(uint32_t role) const { return *roles_[role].graph; }

  template <typename... Parts>
  static absl::Status Invalid(const Parts&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("roles: ", parts...));
  }

  std::string GroupName(uint32_t role, GroupId group) const {
    return absl::StrCat("group '", graph(role).group(group).name, "'");
  }

  static std::string RolesText(const std::vector<uint32_t>& roles) {
    return absl::StrCat("[", absl::StrJoin(roles, " "), "]");
  }

  absl::Status ReadGroups(uint32_t role) {
    const auto& given = roles_[role].role_of_member;
    const auto& groups = graph(role).groups();
    if (!given.empty() && given.size() != groups.size()) {
      return Invalid("role ", role, " gives the roles of ", given.size(),
                     " groups; its graph has ", groups.size());
    }
    members_.emplace_back();
    for (uint32_t g = 0; g < groups.size(); ++g) {
      members_[role].push_back(RolesOfGroup(roles_, role, GroupId(g)));
      const std::vector<uint32_t>& members = members_[role][g];
      if (members.size() != static_cast<size_t>(groups[g].size)) {
        return Invalid("role ", role, " gives the roles of ", members.size(),
                       " members of ", GroupName(role, GroupId(g)), " of size ",
                       groups[g].size);
      }
      for (uint32_t member : members) {
        if (member < roles_.size()) continue;
        return Invalid(GroupName(role, GroupId(g)), " of role ", role,
                       " has a member of role ", member, "; there are ",
                       roles_.size(), " roles");
      }
      if (std::find(members.begin(), members.end(), role) == members.end()) {
        return Invalid("role ", role, " is not among the roles ",
                       RolesText(members), " of its ",
                       GroupName(role, GroupId(g)));
      }
    }
    return absl::OkStatus();
  }

  // Every other role of a group has the same group. Keeps its id there.
  absl::Status FindSharedGroups(uint32_t role) {
    shared_.emplace_back(graph(role).groups().size());
    for (uint32_t g = 0; g < graph(role).groups().size(); ++g) {
      std::set<uint32_t> others(members_[role][g].begin(),
                                members_[role][g].end());
      others.erase(role);
      for (uint32_t other : others) {
        const auto there = graph(other).FindGroup(graph(role).groups()[g].name);
        if (!there.ok()) {
          return Invalid(GroupName(role, GroupId(g)), " of role ", role,
                         " has members of role ", other,
                         ", which has no such group");
        }
        const auto& members = members_[other][there->value()];
        if (members != members_[role][g]) {
          return Invalid(GroupName(role, GroupId(g)), " consists of the roles ",
                         RolesText(members_[role][g]), " for role ", role,
                         ", but of ", RolesText(members), " for role ", other);
        }
        shared_[role][g].push_back({other, *there});
      }
    }
    return absl::OkStatus();
  }

  void CollectOps(uint32_t role) {
    const std::vector<Op>& ops = graph(role).ops();
    for (uint32_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != OpKind::kCollective) continue;
      const CollectiveSpec& spec = ops[i].collective;
      if (IsPointToPoint(spec.kind)) {
        routes_[{role, spec.group, spec.kind, OffsetOf(role, spec)}].push_back(
            OpId(i));
      } else if (!shared_[role][spec.group.value()].empty()) {
        collectives_.push_back({role, OpId(i)});
      }
    }
  }

  uint32_t OffsetOf(uint32_t role, const CollectiveSpec& spec) const {
    const int size = graph(role).group(spec.group).size;
    return static_cast<uint32_t>((spec.peer_offset % size + size) % size);
  }

  absl::Status MeetCollectives() {
    for (const RoleOp& mine : collectives_) {
      const Op& op = graph(mine.role).op(mine.op);
      for (const auto& [other, group] :
           shared_[mine.role][op.collective.group.value()]) {
        const auto there = graph(other).FindOp(op.name);
        const Op* met = there.ok() ? &graph(other).op(*there) : nullptr;
        if (met == nullptr || met->kind != OpKind::kCollective ||
            met->collective.group != group) {
          return Invalid(CollectiveKindName(op.collective.kind), " '", op.name,
                         "' of role ", mine.role, " on ",
                         GroupName(other, group), " is missing in role ", other,
                         ", which has members there");
        }
        // Each pair is compared once.
        if (other < mine.role) continue;
        const RoleOp theirs{other, *there};
        const std::string a = WireText(mine);
        const std::string b = WireText(theirs);
        if (a != b) {
          return Invalid("collective '", op.name, "' on ",
                         GroupName(other, group), " is ", a, " in role ",
                         mine.role, ", but ", b, " in role ", other);
        }
        meetings_.Join(mine, theirs);
      }
    }
    return absl::OkStatus();
  }

  // What members must agree on.
  std::string WireText(RoleOp which) const {
    const Graph& g = graph(which.role);
    const CollectiveSpec& spec = g.op(which.op).collective;
    std::string text(CollectiveKindName(spec.kind));
    if (spec.kind == CollectiveKind::kBarrier) return text;
    const Access& side = AnySide(spec);
    const uint64_t size =
        static_cast<uint64_t>(DTypeSize(g.buffer(side.buffer).dtype));
    absl::StrAppend(&text, " ", DTypeName(g.buffer(side.buffer).dtype));
    if (IsReducing(spec.kind)) {
      absl::StrAppend(&text, " ", ReduceOpName(spec.reduce_op));
    }
    if (IsRooted(spec.kind)) absl::StrAppend(&text, " root ", spec.root);
    if (spec.counts.empty()) {
      absl::StrAppend(&text, " count ", PayloadBytes(g, spec) / size);
    } else {
      absl::StrAppend(&text, " counts ", absl::StrJoin(spec.counts, ","));
    }
    if (spec.lossy) absl::StrAppend(&text, " lossy");
    return text;
  }

  // Looks at every route from both ends, so that none is left over.
  absl::Status MeetPairs() {
    for (const auto& [route, ops] : routes_) {
      const auto& members = members_[route.role][route.group.value()];
      const uint32_t size = static_cast<uint32_t>(members.size());
      std::set<uint32_t> done;
      for (uint32_t position = 0; position < size; ++position) {
        if (members[position] != route.role) continue;
        const uint32_t peer = (position + route.offset) % size;
        if (!done.insert(members[peer]).second) continue;
        RETURN_IF_ERROR(MeetPeer(route, ops, position, peer));
      }
    }
    return absl::OkStatus();
  }

  GroupId GroupIn(uint32_t role, const Route& route) const {
    for (const auto& [other, group] :
         shared_[route.role][route.group.value()]) {
      if (other == role) return group;
    }
    return route.group;
  }

  absl::Status MeetPeer(const Route& route, const std::vector<OpId>& ops,
                        uint32_t position, uint32_t peer) {
    const auto& members = members_[route.role][route.group.value()];
    const uint32_t size = static_cast<uint32_t>(members.size());
    const bool sends = route.kind == CollectiveKind::kSend;
    const Route back{members[peer], GroupIn(members[peer], route),
                     sends ? CollectiveKind::kRecv : CollectiveKind::kSend,
                     (size - route.offset) % size};
    const auto found = routes_.find(back);
    static const std::vector<OpId> kNobody;
    const std::vector<OpId>& met =
        found == routes_.end() ? kNobody : found->second;
    if (met.size() < ops.size()) {
      const Op& first = graph(route.role).op(ops[met.size()]);
      return Invalid(CollectiveKindName(route.kind), " ", met.size(), " '",
                     first.name, "' of role ", route.role, " at position ",
                     position, " of ", GroupName(route.role, route.group),
                     " has no ", CollectiveKindName(back.kind), " at position ",
                     peer, ": role ", back.role, " has ", met.size(),
                     " such, role ", route.role, " has ", ops.size());
    }
    if (!sends) return absl::OkStatus();  // seen from the other end
    for (size_t k = 0; k < ops.size() && k < met.size(); ++k) {
      RETURN_IF_ERROR(MeetPair({route.role, ops[k]}, {back.role, met[k]}));
    }
    return absl::OkStatus();
  }

  absl::Status MeetPair(RoleOp send, RoleOp recv) {
    auto text = [&](RoleOp which) {
      const Graph& g = graph(which.role);
      const CollectiveSpec& spec = g.op(which.op).collective;
      const Access& side = AnySide(spec);
      return absl::StrCat(DTypeName(g.buffer(side.buffer).dtype), " count ",
                          CountOf(g, side, {}), spec.lossy ? " lossy" : "");
    };
    const std::string sent = text(send);
    const std::string received = text(recv);
    if (sent != received) {
      const Op& op = graph(send.role).op(send.op);
      return Invalid("send '", op.name, "' of role ", send.role, " on ",
                     GroupName(send.role, op.collective.group), " is ", sent,
                     ", but recv '", graph(recv.role).op(recv.op).name,
                     "' of role ", recv.role, ", which meets it, is ",
                     received);
    }
    meetings_.Join(send, recv);
    return absl::OkStatus();
  }

  const absl::Span<const RoleSpec> roles_;
  Meetings meetings_;
  // By role and group.
  std::vector<std::vector<std::vector<uint32_t>>> members_;
  // By role and group: the other roles that have it, and its id there.
  std::vector<std::vector<std::vector<std::pair<uint32_t, GroupId>>>> shared_;
  std::vector<RoleOp> collectives_;  // on groups of several roles
  std::map<Route, std::vector<OpId>> routes_;
};

}  // namespace

Meetings::Meetings(absl::Span<const RoleSpec> roles) {
  for (const RoleSpec& role : roles) {
    first_.push_back(first_.back() +
                     static_cast<uint32_t>(role.graph->ops().size()));
  }
  event_.resize(num_ops());
  for (uint32_t i = 0; i < num_ops(); ++i) event_[i] = i;
}

RoleOp Meetings::OpOf(uint32_t number) const {
  const uint32_t role = static_cast<uint32_t>(
      std::upper_bound(first_.begin(), first_.end(), number) - first_.begin() -
      1);
  return {role, OpId(number - first_[role])};
}

// Trees are flat but for what was joined since; the least number is the root.
void Meetings::Join(RoleOp a, RoleOp b) {
  auto root = [this](uint32_t at) {
    while (event_[at] != at) at = event_[at] = event_[event_[at]];
    return at;
  };
  const uint32_t x = root(NumberOf(a));
  const uint32_t y = root(NumberOf(b));
  event_[std::max(x, y)] = std::min(x, y);
}

void Meetings::Settle() {
  // A parent has a smaller number, so it is settled first.
  for (uint32_t i = 0; i < event_.size(); ++i) event_[i] = event_[event_[i]];
}

std::vector<uint32_t> RolesOfGroup(absl::Span<const RoleSpec> roles,
                                   uint32_t role, GroupId group) {
  const auto& given = roles[role].role_of_member;
  if (group.value() < given.size() && !given[group.value()].empty()) {
    return given[group.value()];
  }
  return std::vector<uint32_t>(
      static_cast<size_t>(roles[role].graph->group(group).size), role);
}

absl::StatusOr<Meetings> FindMeetings(absl::Span<const RoleSpec> roles) {
  if (roles.empty() || roles.size() > kMaxRoles) {
    return absl::InvalidArgumentError(absl::StrCat(
        "roles: there are ", roles.size(), "; it must be 1 to ", kMaxRoles));
  }
  uint64_t num_ops = 0;
  for (const RoleSpec& role : roles) num_ops += role.graph->ops().size();
  if (num_ops > Graph::kMaxOps) {
    return absl::InvalidArgumentError(
        absl::StrCat("roles: together they have ", num_ops,
                     " ops; the limit is ", Graph::kMaxOps));
  }
  if (roles.size() == 1 && roles[0].role_of_member.empty() &&
      !roles[0].graph->has_point_to_point()) {
    return Meetings(roles);
  }
  return MeetingFinder(roles).Run();
}

}  // namespace commsched

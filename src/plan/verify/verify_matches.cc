#include "plan/verify/verify_matches.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "graph/region.h"
#include "plan/edge.h"
#include "plan/explain/names.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

// Launches of one role on one communicator, and its sends and receives by
// direction and offset of the peer: (launch, op), in order of issue.
struct OneSide {
  std::vector<uint32_t> collectives;
  std::map<std::pair<CollectiveKind, uint32_t>,
           std::vector<std::pair<uint32_t, OpId>>>
      peers;
};

// A group as all its members see it.
struct Communicator {
  std::string name;
  std::vector<uint32_t> members;        // role by position
  std::map<uint32_t, OneSide> of_role;  // those that are planned here
};

class RoleMatcher {
 public:
  RoleMatcher(absl::Span<const RoleSpec> roles,
              absl::Span<const Plan* const> plans)
      : roles_(roles), plans_(plans) {}

  absl::StatusOr<RoleMatches> Run() {
    for (uint32_t r = 0; r < plans_.size(); ++r) {
      CollectSides(r);
      out_.peers.emplace_back(plans_[r]->launches.size());
    }
    for (const auto& [identity, comm] : comms_) {
      RETURN_IF_ERROR(MatchCollectives(comm));
      RETURN_IF_ERROR(MatchPeers(comm));
    }
    return std::move(out_);
  }

 private:
  const Launch& LaunchAt(RoleLaunch at) const {
    return plans_[at.role]->launches[at.launch];
  }
  const Op& OpOf(uint32_t role, OpId op) const {
    return plans_[role]->graph->op(op);
  }

  std::vector<uint32_t> MembersOf(uint32_t role, uint32_t group) const {
    const auto& given = roles_[role].role_of_member;
    if (group < given.size() && !given[group].empty()) return given[group];
    const int size = plans_[role]->graph->groups()[group].size;
    return std::vector<uint32_t>(static_cast<size_t>(size), role);
  }

  void CollectSides(uint32_t role) {
    const Graph& graph = *plans_[role]->graph;
    std::vector<OneSide*> sides;
    for (uint32_t g = 0; g < graph.groups().size(); ++g) {
      std::vector<uint32_t> members = MembersOf(role, g);
      const std::string& name = graph.groups()[g].name;
      Communicator& comm = comms_[{name, members}];
      comm.name = name;
      comm.members = std::move(members);
      sides.push_back(&comm.of_role[role]);
    }
    const std::vector<Launch>& launches = plans_[role]->launches;
    for (uint32_t k = 0; k < launches.size(); ++k) {
      OneSide& side = *sides[launches[k].group.value()];
      if (launches[k].kind != CollectiveKind::kSend) {
        side.collectives.push_back(k);
        continue;
      }
      const int size = graph.group(launches[k].group).size;
      for (OpId op : launches[k].members) {
        const CollectiveSpec& spec = graph.op(op).collective;
        const int offset = (spec.peer_offset % size + size) % size;
        side.peers[{spec.kind, static_cast<uint32_t>(offset)}].push_back(
            {k, op});
      }
    }
  }

  // What a member of the communicator must find at the others.
  std::string Wire(RoleLaunch at) const {
    const Launch& launch = LaunchAt(at);
    const bool list = launch.members.size() > 1;
    std::string text = absl::StrCat(
        "key ", launch.key, " ", CollectiveKindName(launch.kind), " ",
        DTypeName(launch.dtype), " ", ReduceOpName(launch.reduce_op), " root ",
        launch.root, list ? " way " : "", list ? WayName(launch.way) : "",
        launch.coded ? " coded" : "", " piece ", launch.piece.index, "/",
        launch.piece.of, " [", launch.piece.offset, ",+", launch.piece.count,
        "] bytes ", launch.payload_bytes, " of");
    for (OpId op : launch.members) {
      const Op& desc = OpOf(at.role, op);
      absl::StrAppend(&text, " '", desc.name, "' ",
                      absl::StrJoin(desc.collective.counts, ","));
    }
    return text;
  }

  absl::Status MatchCollectives(const Communicator& comm) {
    const auto& [first_role, first] = *comm.of_role.begin();
    for (const auto& [role, side] : comm.of_role) {
      if (role == first_role) continue;
      const size_t most =
          std::max(first.collectives.size(), side.collectives.size());
      for (size_t i = 0; i < most; ++i) {
        auto text = [&](uint32_t r, const OneSide& s) {
          return i < s.collectives.size() ? Wire({r, s.collectives[i]})
                                          : std::string("nothing");
        };
        const std::string a = text(first_role, first);
        const std::string b = text(role, side);
        if (a != b) {
          return RolesError("launch ", i, " on group '", comm.name, "' is <", a,
                            "> in role ", first_role, ", but <", b,
                            "> in role ", role);
        }
      }
    }
    if (comm.of_role.size() == 1) return absl::OkStatus();
    for (size_t i = 0; i < first.collectives.size(); ++i) {
      std::vector<RoleLaunch> all;
      for (const auto& [role, side] : comm.of_role) {
        all.push_back({role, side.collectives[i]});
      }
      out_.collectives.push_back(std::move(all));
    }
    return absl::OkStatus();
  }

  void Meet(RoleLaunch a, RoleLaunch b) {
    out_.peers[a.role][a.launch].push_back(b);
    if (a.role == b.role && a.launch == b.launch) return;
    out_.peers[b.role][b.launch].push_back(a);
  }

  absl::Status MatchPeers(const Communicator& comm) {
    const uint32_t size = static_cast<uint32_t>(comm.members.size());
    // Positions of equal roles say the same.
    std::map<std::tuple<uint32_t, uint32_t, CollectiveKind, uint32_t>, bool>
        done;
    for (uint32_t p = 0; p < size; ++p) {
      const auto side = comm.of_role.find(comm.members[p]);
      if (side == comm.of_role.end()) continue;
      for (const auto& [route, ops] : side->second.peers) {
        const uint32_t q = (p + route.second) % size;
        if (std::exchange(done[{comm.members[p], comm.members[q], route.first,
                                route.second}],
                          true)) {
          continue;
        }
        RETURN_IF_ERROR(MatchRoute(comm, p, q, route, ops));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MatchRoute(const Communicator& comm, uint32_t p, uint32_t q,
                          const std::pair<CollectiveKind, uint32_t>& route,
                          const std::vector<std::pair<uint32_t, OpId>>& ops) {
    const uint32_t size = static_cast<uint32_t>(comm.members.size());
    const bool sends = route.first == CollectiveKind::kSend;
    const auto other = comm.of_role.find(comm.members[q]);
    std::vector<std::pair<uint32_t, OpId>> met;
    if (other != comm.of_role.end()) {
      const auto found = other->second.peers.find(
          {sends ? CollectiveKind::kRecv : CollectiveKind::kSend,
           (size - route.second) % size});
      if (found != other->second.peers.end()) met = found->second;
    }
    if (met.size() != ops.size()) {
      return RolesError("group '", comm.name, "': position ", p, " has ",
                        ops.size(), " ", CollectiveKindName(route.first),
                        " with position ", q, ", which has ", met.size(),
                        " for it");
    }
    if (!sends) return absl::OkStatus();
    const auto declared_here = DeclaredOrder(ops);
    const auto declared_there = DeclaredOrder(met);
    for (size_t k = 0; k < ops.size(); ++k) {
      const RoleLaunch from{comm.members[p], ops[k].first};
      const RoleLaunch to{comm.members[q], met[k].first};
      const std::string a = PeerText(from.role, ops[k].second);
      const std::string b = PeerText(to.role, met[k].second);
      if (declared_here[k] != declared_there[k] || a != b) {
        return RolesError(
            "group '", comm.name, "': send ", k, " from position ", p, " to ",
            q, " is '", OpOf(from.role, ops[k].second).name, "' of role ",
            from.role, ", ", a, ", declared as number ", declared_here[k],
            ", but is received by '", OpOf(to.role, met[k].second).name,
            "' of role ", to.role, ", ", b, ", declared as number ",
            declared_there[k]);
      }
      Meet(from, to);
    }
    return absl::OkStatus();
  }

  // For each, how many of them were declared before it.
  static std::vector<size_t> DeclaredOrder(
      const std::vector<std::pair<uint32_t, OpId>>& ops) {
    std::vector<OpId> sorted;
    for (const auto& [launch, op] : ops) sorted.push_back(op);
    std::sort(sorted.begin(), sorted.end());
    std::vector<size_t> number;
    for (const auto& [launch, op] : ops) {
      number.push_back(static_cast<size_t>(
          std::lower_bound(sorted.begin(), sorted.end(), op) - sorted.begin()));
    }
    return number;
  }

  std::string PeerText(uint32_t role, OpId op) const {
    const Graph& graph = *plans_[role]->graph;
    const CollectiveSpec& spec = graph.op(op).collective;
    const Access& side = AnySide(spec);
    return absl::StrCat(DTypeName(graph.buffer(side.buffer).dtype), " count ",
                        ResolveRegion(graph, side, 0, {}).elements());
  }

  const absl::Span<const RoleSpec> roles_;
  const absl::Span<const Plan* const> plans_;
  std::map<std::pair<std::string, std::vector<uint32_t>>, Communicator> comms_;
  RoleMatches out_;
};

}  // namespace

absl::StatusOr<RoleMatches> MatchRoles(absl::Span<const RoleSpec> roles,
                                       absl::Span<const Plan* const> plans) {
  return RoleMatcher(roles, plans).Run();
}

std::string NameOf(RoleLaunch at, absl::Span<const Plan* const> plans) {
  return absl::StrCat(DescribeNode(*plans[at.role], RefOf(LaunchId(at.launch))),
                      " of role ", at.role);
}

}  // namespace commsched

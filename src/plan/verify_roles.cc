#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "graph/region.h"
#include "plan/edge.h"
#include "plan/names.h"
#include "plan/verify.h"
#include "plan/verify_parts.h"

namespace commsched {
namespace {

// A launch of a role.
struct At {
  uint32_t role = 0;
  uint32_t launch = 0;
};

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

template <typename... Parts>
absl::Status Fail(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("plan: roles: ", parts...));
}

class RoleVerifier {
 public:
  RoleVerifier(absl::Span<const RoleSpec> roles,
               absl::Span<const Plan* const> plans)
      : roles_(roles), plans_(plans) {}

  absl::Status Run() {
    for (uint32_t r = 0; r < plans_.size(); ++r) {
      RETURN_IF_ERROR(CheckKeys(r));
      CollectSides(r);
      meets_.emplace_back(plans_[r]->launches.size());
    }
    for (const auto& [identity, comm] : comms_) {
      RETURN_IF_ERROR(MatchCollectives(comm));
      RETURN_IF_ERROR(MatchPeers(comm));
    }
    NumberEvents();
    CollectEdges();
    return FindCycle();
  }

 private:
  std::string Name(At at) const {
    return absl::StrCat(
        DescribeNode(*plans_[at.role], RefOf(LaunchId(at.launch))), " of role ",
        at.role);
  }
  const Launch& LaunchAt(At at) const {
    return plans_[at.role]->launches[at.launch];
  }
  const Op& OpOf(uint32_t role, OpId op) const {
    return plans_[role]->graph->op(op);
  }

  absl::Status CheckKeys(uint32_t role) const {
    const std::vector<Launch>& launches = plans_[role]->launches;
    for (uint32_t k = 1; k < launches.size(); ++k) {
      if (launches[k - 1].key < launches[k].key) continue;
      return Fail(Name({role, k}), " has key ", launches[k].key,
                  ", which is not above that of ", Name({role, k - 1}), ", ",
                  launches[k - 1].key);
    }
    return absl::OkStatus();
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
  std::string Wire(At at) const {
    const Launch& launch = LaunchAt(at);
    const bool list = launch.members.size() > 1;
    std::string text = absl::StrCat(
        "key ", launch.key, " ", CollectiveKindName(launch.kind), " ",
        DTypeName(launch.dtype), " ", ReduceOpName(launch.reduce_op), " root ",
        launch.root, list ? " way " : "", list ? WayName(launch.way) : "",
        launch.coded ? " coded" : "", " piece ", launch.piece.index, "/",
        launch.piece.of, " [", launch.piece.offset, ",+", launch.piece.count,
        "] bytes ", launch.weight_bytes, " of");
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
          return Fail("launch ", i, " on group '", comm.name, "' is <", a,
                      "> in role ", first_role, ", but <", b, "> in role ",
                      role);
        }
      }
    }
    if (comm.of_role.size() == 1) return absl::OkStatus();
    for (size_t i = 0; i < first.collectives.size(); ++i) {
      std::vector<At> all;
      for (const auto& [role, side] : comm.of_role) {
        all.push_back({role, side.collectives[i]});
      }
      meetings_.push_back(std::move(all));
    }
    return absl::OkStatus();
  }

  void Meet(At a, At b) {
    meets_[a.role][a.launch].push_back(b);
    if (a.role == b.role && a.launch == b.launch) return;
    meets_[b.role][b.launch].push_back(a);
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
      return Fail("group '", comm.name, "': position ", p, " has ", ops.size(),
                  " ", CollectiveKindName(route.first), " with position ", q,
                  ", which has ", met.size(), " for it");
    }
    if (!sends) return absl::OkStatus();
    const auto declared_here = DeclaredOrder(ops);
    const auto declared_there = DeclaredOrder(met);
    for (size_t k = 0; k < ops.size(); ++k) {
      const At from{comm.members[p], ops[k].first};
      const At to{comm.members[q], met[k].first};
      const std::string a = PeerText(from.role, ops[k].second);
      const std::string b = PeerText(to.role, met[k].second);
      if (declared_here[k] != declared_there[k] || a != b) {
        return Fail("group '", comm.name, "': send ", k, " from position ", p,
                    " to ", q, " is '", OpOf(from.role, ops[k].second).name,
                    "' of role ", from.role, ", ", a, ", declared as number ",
                    declared_here[k], ", but is received by '",
                    OpOf(to.role, met[k].second).name, "' of role ", to.role,
                    ", ", b, ", declared as number ", declared_there[k]);
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
    const Access& side =
        spec.kind == CollectiveKind::kSend ? spec.input : spec.output;
    return absl::StrCat(DTypeName(graph.buffer(side.buffer).dtype), " count ",
                        ResolveRegion(graph, side, 0, {}).elements());
  }

  // Per role host calls, then issues, then completions; at last the meetings.
  void NumberEvents() {
    for (const Plan* plan : plans_) {
      base_.push_back(num_events_);
      num_events_ +=
          static_cast<uint32_t>(plan->nodes.size() + 2 * plan->launches.size());
    }
    base_.push_back(num_events_);
    num_events_ += static_cast<uint32_t>(meetings_.size());
  }
  uint32_t Call(uint32_t role, uint32_t node) const {
    return base_[role] + node;
  }
  uint32_t Issue(At at) const {
    return base_[at.role] +
           static_cast<uint32_t>(plans_[at.role]->nodes.size()) + at.launch;
  }
  uint32_t Completion(At at) const {
    return Issue(at) + static_cast<uint32_t>(plans_[at.role]->launches.size());
  }

  void Require(uint32_t before, uint32_t after) {
    edges_.push_back({after, before});
  }

  void RequireWaits(uint32_t role, absl::Span<const Wait> waits,
                    uint32_t after) {
    for (const Wait& wait : waits) {
      if (wait.distance != 0) continue;
      const uint32_t index = wait.producer.index;
      Require(wait.producer.kind == NodeRef::Kind::kOp
                  ? Call(role, plans_[role]->node_of_op[index])
                  : Completion({role, index}),
              after);
    }
  }

  void CollectEdges() {
    for (uint32_t r = 0; r < plans_.size(); ++r) {
      const Plan& plan = *plans_[r];
      for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
        if (i > 0) Require(Call(r, i - 1), Call(r, i));
        RequireWaits(r, plan.nodes[i].waits, Call(r, i));
      }
      std::vector<uint32_t> last(plan.num_comm_lanes, Plan::kNone);
      for (uint32_t k = 0; k < plan.launches.size(); ++k) {
        const Launch& launch = plan.launches[k];
        const uint32_t issue = Issue({r, k});
        if (k > 0) Require(Issue({r, k - 1}), issue);
        for (OpId op : launch.producers) {
          Require(Call(r, plan.node_of_op[op.value()]), issue);
        }
        RequireWaits(r, launch.waits, issue);
        const uint32_t completion = Completion({r, k});
        Require(issue, completion);
        for (At met : meets_[r][k]) Require(Issue(met), completion);
        uint32_t& before = last[launch.lane];
        if (before != Plan::kNone) Require(Completion({r, before}), completion);
        before = k;
      }
    }
    for (uint32_t m = 0; m < meetings_.size(); ++m) {
      for (At at : meetings_[m]) {
        Require(Issue(at), base_.back() + m);
        Require(base_.back() + m, Completion(at));
      }
    }
  }

  std::string EventName(uint32_t event) const {
    if (event >= base_.back()) {
      return absl::StrCat("meeting of ",
                          Name(meetings_[event - base_.back()].front()));
    }
    const uint32_t role = static_cast<uint32_t>(
        std::upper_bound(base_.begin(), base_.end(), event) - base_.begin() -
        1);
    const Plan& plan = *plans_[role];
    const uint32_t index = event - base_[role];
    const uint32_t num_nodes = static_cast<uint32_t>(plan.nodes.size());
    const uint32_t num_launches = static_cast<uint32_t>(plan.launches.size());
    if (index < num_nodes) {
      return absl::StrCat("call of '", OpOf(role, plan.nodes[index].op).name,
                          "' of role ", role);
    }
    const uint32_t launch = (index - num_nodes) % num_launches;
    return absl::StrCat(
        index < num_nodes + num_launches ? "issue of " : "completion of ",
        Name({role, launch}));
  }

  // Depth first, from each event to those it comes after.
  absl::Status FindCycle() {
    std::vector<uint32_t> first(num_events_ + 1, 0);
    for (const auto& [after, before] : edges_) ++first[after + 1];
    for (uint32_t e = 0; e < num_events_; ++e) first[e + 1] += first[e];
    std::vector<uint32_t> befores(edges_.size());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (const auto& [after, before] : edges_) befores[next[after]++] = before;

    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(num_events_, kNew);
    std::vector<uint32_t> at(first.begin(), first.end() - 1);
    std::vector<uint32_t> path;
    for (uint32_t root = 0; root < num_events_; ++root) {
      if (state[root] != kNew) continue;
      path.push_back(root);
      state[root] = kOpen;
      while (!path.empty()) {
        const uint32_t event = path.back();
        if (at[event] == first[event + 1]) {
          state[event] = kDone;
          path.pop_back();
          continue;
        }
        const uint32_t before = befores[at[event]++];
        if (state[before] == kOpen) return NameCycle(path, before);
        if (state[before] == kDone) continue;
        state[before] = kOpen;
        path.push_back(before);
      }
    }
    return absl::OkStatus();
  }

  absl::Status NameCycle(const std::vector<uint32_t>& path,
                         uint32_t begin) const {
    const auto from = std::find(path.begin(), path.end(), begin);
    std::string text = EventName(begin);
    for (auto it = from + 1; it != path.end(); ++it) {
      absl::StrAppend(&text, " waits for ", EventName(*it), ", which");
    }
    return Fail("deadlock: ", text, " waits for ", EventName(begin));
  }

  const absl::Span<const RoleSpec> roles_;
  const absl::Span<const Plan* const> plans_;
  std::map<std::pair<std::string, std::vector<uint32_t>>, Communicator> comms_;
  std::vector<std::vector<At>> meetings_;  // of collectives of several roles
  std::vector<std::vector<std::vector<At>>> meets_;  // of peers, by launch
  std::vector<uint32_t> base_;
  uint32_t num_events_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // after, before
};

}  // namespace

absl::Status VerifyRoles(absl::Span<const RoleSpec> roles,
                         absl::Span<const Plan* const> plans) {
  // Who meets nobody has nothing to add to VerifyPlan().
  if (plans.size() == 1 && !plans[0]->graph->has_point_to_point()) {
    return absl::OkStatus();
  }
  return RoleVerifier(roles, plans).Run();
}

}  // namespace commsched

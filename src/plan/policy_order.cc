#include "plan/policy_order.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

class PolicyOrderer {
 public:
  PolicyOrderer(const Policy& policy, absl::Span<const RoleDraft> roles,
                const JobModel& model)
      : policy_(policy), roles_(roles), model_(model) {}

  absl::StatusOr<std::vector<uint32_t>> Run(
      const std::vector<int64_t>& earliest_ns,
      const std::vector<int64_t>& need_ns) {
    FindAfter();
    std::vector<PolicyLaunch> launches;
    for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
      launches.push_back(Describe(t));
      launches.back().earliest_ns = earliest_ns[model_.num_compute() + t];
      launches.back().need_ns = need_ns[model_.num_compute() + t];
    }
    auto order = policy_.Order(launches);
    if (!order.ok()) {
      return absl::Status(order.status().code(),
                          absl::StrCat("policy '", policy_.name(),
                                       "' on the order of launches: ",
                                       order.status().message()));
    }
    if (order->empty()) return order;
    RETURN_IF_ERROR(CheckPermutation(*order));
    RETURN_IF_ERROR(CheckAfter(*order));
    RETURN_IF_ERROR(CheckNeeds(*order));
    return order;
  }

 private:
  const Launch& LaunchOf(uint32_t t) const {
    const JobModel::Side side = model_.SidesOf(model_.transfers[t])[0];
    return (*roles_[side.role].launches)[side.launch];
  }

  const Graph& GraphOf(uint32_t t) const {
    return *roles_[model_.SidesOf(model_.transfers[t])[0].role].graph;
  }

  std::string Name(uint32_t t) const {
    const Launch& launch = LaunchOf(t);
    std::string name =
        absl::StrCat("'", GraphOf(t).op(launch.members.front()).name, "'");
    if (launch.piece.of > 1) {
      absl::StrAppend(&name, " piece ", launch.piece.index + 1, " of ",
                      launch.piece.of);
    }
    return name;
  }

  // Transfers that each depends on directly, in the step; a piece of those also
  // on the piece before it, so that the last piece stays the last.
  void FindAfter() {
    after_.resize(model_.transfers.size());
    const uint32_t first = model_.num_compute();
    for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
      for (const JobModel::Edge& edge : model_.In(first + t)) {
        if (edge.distance == 0 && model_.IsTransfer(edge.node)) {
          after_[t].push_back(edge.node - first);
        }
      }
      if (LaunchOf(t).piece.index > 0) after_[t].push_back(t - 1);
      std::sort(after_[t].begin(), after_[t].end());
      after_[t].erase(std::unique(after_[t].begin(), after_[t].end()),
                      after_[t].end());
    }
  }

  PolicyLaunch Describe(uint32_t t) const {
    const JobModel::Transfer& transfer = model_.transfers[t];
    const JobModel::Side side = model_.SidesOf(transfer)[0];
    const Launch& launch = LaunchOf(t);
    const Graph& graph = GraphOf(t);
    const Group& group = graph.group(launch.group);
    PolicyLaunch out;
    out.item.op = launch.members.front();
    out.item.name = graph.op(out.item.op).name;
    out.item.kind = launch.kind;
    out.item.dtype = launch.dtype;
    out.item.group = group.name;
    out.item.group_size = static_cast<uint32_t>(group.size);
    out.item.num_members = static_cast<uint32_t>(launch.members.size());
    out.item.bytes = transfer.bytes;
    out.item.link_ns = transfer.link_ns;
    out.item.priority = transfer.priority;
    out.item.ready = side.ready;
    out.item.first_need = side.first_need;
    out.role = side.role;
    out.piece = launch.piece.index;
    out.num_pieces = launch.piece.of;
    out.after = after_[t];
    return out;
  }

  template <typename... Parts>
  absl::Status Refuse(const Parts&... parts) const {
    return absl::InvalidArgumentError(
        absl::StrCat("policy '", policy_.name(), "' ", parts...));
  }

  absl::Status CheckPermutation(const std::vector<uint32_t>& order) {
    const size_t n = model_.transfers.size();
    if (order.size() != n) {
      return Refuse("orders ", order.size(), " launches; there are ", n);
    }
    place_.assign(n, Plan::kNone);
    for (uint32_t i = 0; i < n; ++i) {
      if (order[i] >= n) {
        return Refuse("orders launch ", order[i], "; there are ", n);
      }
      uint32_t& place = place_[order[i]];
      if (place != Plan::kNone) {
        return Refuse("orders ", Name(order[i]), " twice");
      }
      place = i;
    }
    return absl::OkStatus();
  }

  absl::Status CheckAfter(const std::vector<uint32_t>& order) const {
    for (uint32_t t : order) {
      for (uint32_t before : after_[t]) {
        if (place_[before] < place_[t]) continue;
        return Refuse("orders ", Name(t), " before ", Name(before),
                      ", which it comes after");
      }
    }
    return absl::OkStatus();
  }

  // Backwards: the first need, by role, of all that go later.
  absl::Status CheckNeeds(const std::vector<uint32_t>& order) const {
    struct Need {
      uint32_t position = PlannedOrder::kNone;
      uint32_t transfer = 0;
    };
    std::vector<Need> needs(model_.num_roles);
    for (size_t i = order.size(); i-- > 0;) {
      const uint32_t t = order[i];
      for (const JobModel::Side& side : model_.SidesOf(model_.transfers[t])) {
        Need& need = needs[side.role];
        if (side.first_need < need.position) need = {side.first_need, t};
        if (side.ready <= need.position) continue;
        const RoleDraft& role = roles_[side.role];
        const std::string op =
            role.graph->op(role.order->host[need.position]).name;
        return Refuse("orders ", Name(t), " before ", Name(need.transfer),
                      ", but '", op, "' needs the latter before the former is ",
                      "ready: a deadlock");
      }
    }
    return absl::OkStatus();
  }

  const Policy& policy_;
  const absl::Span<const RoleDraft> roles_;
  const JobModel& model_;
  std::vector<std::vector<uint32_t>> after_;  // by transfer
  std::vector<uint32_t> place_;               // by transfer
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> OrderOfPolicy(
    const Policy& policy, absl::Span<const RoleDraft> roles,
    const JobModel& model, const std::vector<int64_t>& earliest_ns,
    const std::vector<int64_t>& need_ns) {
  return PolicyOrderer(policy, roles, model).Run(earliest_ns, need_ns);
}

}  // namespace commsched

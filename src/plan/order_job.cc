#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/order.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

class JobOrderer {
 public:
  JobOrderer(absl::Span<const RoleSpec> roles,
             absl::Span<const Dependencies* const> dependencies,
             const Meetings& meetings)
      : roles_(roles), dependencies_(dependencies), meetings_(meetings) {
    for (size_t r = 0; r < roles.size(); ++r) {
      hosts_.push_back(OrderHost(*roles[r].graph, *dependencies[r]));
    }
  }

  absl::StatusOr<JobOrder> Run() {
    CollectEdges();
    if (!FindTimes()) return NameCycle();
    return Sort();
  }

 private:
  struct Edge {
    uint32_t from = 0, to = 0;  // events
  };

  struct Sorted {
    int64_t start;
    uint32_t depth;
    int64_t urgency;
    uint32_t consumer;
    uint32_t event;  // the number of the first op: its role, then its id

    auto Key() const {
      return std::make_tuple(start, depth, urgency, consumer, event);
    }
  };

  const Op& OpAt(RoleOp which) const {
    return roles_[which.role].graph->op(which.op);
  }
  bool IsCollective(uint32_t number) const {
    return OpAt(meetings_.OpOf(number)).kind == OpKind::kCollective;
  }

  // Calls visit(RoleOp from, RoleOp to) for every pair in order.
  template <typename Visitor>
  void ForEachEdge(Visitor visit) const {
    for (uint32_t r = 0; r < roles_.size(); ++r) {
      for (const Dependency& edge : dependencies_[r]->edges) {
        if (edge.distance == 0) visit(RoleOp{r, edge.from}, RoleOp{r, edge.to});
      }
      const std::vector<OpId>& host = hosts_[r].order.host;
      for (size_t i = 1; i < host.size(); ++i) {
        visit(RoleOp{r, host[i - 1]}, RoleOp{r, host[i]});
      }
    }
  }

  // Edges by `from`.
  void CollectEdges() {
    const uint32_t n = meetings_.num_ops();
    first_edge_.assign(n + 1, 0);
    num_before_.assign(n, 0);
    ForEachEdge([&](RoleOp from, RoleOp to) {
      ++first_edge_[meetings_.EventOf(from) + 1];
      ++num_before_[meetings_.EventOf(to)];
    });
    for (uint32_t i = 0; i < n; ++i) first_edge_[i + 1] += first_edge_[i];
    targets_.resize(first_edge_[n]);
    std::vector<uint32_t> next(first_edge_.begin(), first_edge_.end() - 1);
    ForEachEdge([&](RoleOp from, RoleOp to) {
      targets_[next[meetings_.EventOf(from)]++] = meetings_.EventOf(to);
    });
  }

  int64_t CostOf(uint32_t number) const {
    const RoleOp which = meetings_.OpOf(number);
    const RoleSpec& role = roles_[which.role];
    const Op& op = OpAt(which);
    const bool compute = op.kind == OpKind::kCompute;
    if (roles_.size() == 1) return compute ? 1 : 0;
    if (compute) {
      return std::max<int64_t>(1,
                               OpCostNs(*role.graph, which.op, role.profile));
    }
    const CollectiveSpec& spec = op.collective;
    return LinkNs(spec.kind, role.graph->group(spec.group).size,
                  PayloadBytes(*role.graph, spec), role.profile);
  }

  // The longest paths to each event. False if there is a cycle.
  bool FindTimes() {
    const uint32_t n = meetings_.num_ops();
    start_.assign(n, 0);
    depth_.assign(n, 0);
    std::vector<int64_t> cost(n, 0);
    for (uint32_t i = 0; i < n; ++i) {
      int64_t& most = cost[meetings_.EventOf(i)];
      most = std::max(most, CostOf(i));
    }
    std::vector<uint32_t> done;
    done.reserve(n);
    for (uint32_t i = 0; i < n; ++i) {
      // Ops that meet another one hang on its event.
      if (num_before_[i] == 0) done.push_back(i);
    }
    for (size_t at = 0; at < done.size(); ++at) {
      const uint32_t from = done[at];
      const bool collective = IsCollective(from);
      for (uint32_t e = first_edge_[from]; e < first_edge_[from + 1]; ++e) {
        const uint32_t to = targets_[e];
        start_[to] = std::max(start_[to], start_[from] + cost[from]);
        if (collective) depth_[to] = std::max(depth_[to], depth_[from] + 1);
        if (--num_before_[to] == 0) done.push_back(to);
      }
    }
    return done.size() == n;
  }

  absl::StatusOr<JobOrder> Sort() {
    const uint32_t n = meetings_.num_ops();
    // Both are by event, over all ops that meet there.
    std::vector<int64_t> urgency(n, 0);
    std::vector<uint32_t> consumer(n, PlannedOrder::kNone);
    std::vector<std::vector<RoleOp>> met(n);
    for (uint32_t i = 0; i < n; ++i) {
      const RoleOp which = meetings_.OpOf(i);
      const Op& op = OpAt(which);
      if (op.kind != OpKind::kCollective) continue;
      const uint32_t event = meetings_.EventOf(i);
      const int64_t own = -int64_t{op.priority};
      urgency[event] = met[event].empty() ? own : std::min(urgency[event], own);
      consumer[event] = std::min(consumer[event],
                                 hosts_[which.role].consumer[which.op.value()]);
      met[event].push_back(which);
    }
    std::vector<Sorted> sorted;
    for (uint32_t event = 0; event < n; ++event) {
      if (met[event].empty()) continue;
      sorted.push_back({start_[event], depth_[event], urgency[event],
                        consumer[event], event});
    }
    std::sort(
        sorted.begin(), sorted.end(),
        [](const Sorted& a, const Sorted& b) { return a.Key() < b.Key(); });
    JobOrder job;
    for (HostOrder& host : hosts_) job.roles.push_back(std::move(host.order));
    for (const Sorted& each : sorted) {
      for (const RoleOp& which : met[each.event]) {
        job.roles[which.role].collectives.push_back(which.op);
        job.ops.push_back(which);
      }
      job.first.push_back(static_cast<uint32_t>(job.ops.size()));
    }
    return job;
  }

  // One step of a cycle, within a role.
  struct Step {
    RoleOp from, to;
  };

  // What FindTimes() has left is on cycles or behind them.
  absl::Status NameCycle() const {
    const std::vector<Step> cycle = ShortestCycle();
    std::string text;
    for (size_t i = 0; i < cycle.size(); ++i) {
      const Step& step = cycle[i];
      const Step& before = cycle[i == 0 ? cycle.size() - 1 : i - 1];
      if (i == 0 || !(before.to == step.from)) {
        absl::StrAppend(&text, i == 0 ? "" : "; ", "role ", step.from.role,
                        ": '", OpAt(step.from).name, "'");
      }
      absl::StrAppend(&text, " -> '", OpAt(step.to).name, "'");
    }
    return absl::InvalidArgumentError(
        absl::StrCat("roles: the job deadlocks when ops are called in these "
                     "orders; each of these waits for the one before it in its "
                     "role and for the ops that it is matched with: ",
                     text));
  }

  std::vector<Step> ShortestCycle() const {
    std::vector<std::vector<Step>> onward(meetings_.num_ops());
    std::vector<std::vector<uint32_t>> back(meetings_.num_ops());
    ForEachEdge([&](RoleOp from, RoleOp to) {
      const uint32_t a = meetings_.EventOf(from);
      const uint32_t b = meetings_.EventOf(to);
      if (num_before_[a] == 0 || num_before_[b] == 0) return;
      onward[a].push_back({from, to});
      back[b].push_back(a);
    });
    // Backwards from anything that is left one never leaves what is left, so
    // at last an event comes up again.
    uint32_t at = 0;
    while (num_before_[at] == 0) ++at;
    std::vector<uint8_t> seen(meetings_.num_ops(), 0);
    while (seen[at] == 0) {
      seen[at] = 1;
      at = back[at].front();
    }
    return WayBackTo(at, onward);
  }

  // Breadth first from `event` to itself.
  std::vector<Step> WayBackTo(
      uint32_t event, const std::vector<std::vector<Step>>& onward) const {
    std::vector<const Step*> came(meetings_.num_ops(), nullptr);
    std::vector<uint32_t> queue = {event};
    for (size_t i = 0; came[event] == nullptr; ++i) {
      for (const Step& step : onward[queue[i]]) {
        const uint32_t to = meetings_.EventOf(step.to);
        if (came[to] != nullptr) continue;
        came[to] = &step;
        queue.push_back(to);
      }
    }
    std::vector<Step> cycle;
    uint32_t at = event;
    do {
      cycle.push_back(*came[at]);
      at = meetings_.EventOf(came[at]->from);
    } while (at != event);
    std::reverse(cycle.begin(), cycle.end());
    return cycle;
  }

  const absl::Span<const RoleSpec> roles_;
  const absl::Span<const Dependencies* const> dependencies_;
  const Meetings& meetings_;
  std::vector<HostOrder> hosts_;
  std::vector<uint32_t> first_edge_;  // by event, in targets_
  std::vector<uint32_t> targets_;
  std::vector<uint32_t> num_before_;  // by event, not yet done
  std::vector<int64_t> start_;        // by event
  std::vector<uint32_t> depth_;
};

}  // namespace

absl::StatusOr<JobOrder> OrderJob(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies,
    const Meetings& meetings) {
  if (roles.size() > 1 || roles[0].graph->has_point_to_point()) {
    return JobOrderer(roles, dependencies, meetings).Run();
  }
  JobOrder job;
  job.roles.push_back(OrderOps(*roles[0].graph, *dependencies[0]));
  job.ops.reserve(job.roles[0].collectives.size());
  job.first.reserve(job.roles[0].collectives.size() + 1);
  for (OpId op : job.roles[0].collectives) {
    job.ops.push_back({0, op});
    job.first.push_back(static_cast<uint32_t>(job.ops.size()));
  }
  return job;
}

}  // namespace commsched

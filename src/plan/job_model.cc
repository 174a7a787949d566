#include "plan/job_model.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plan/cost_model.h"
#include "plan/lower_bound.h"

namespace commsched {
namespace {

class Modeler {
 public:
  Modeler(absl::Span<const RoleDraft> roles, const PlanOptions& options)
      : roles_(roles) {
    model_.num_roles = static_cast<uint32_t>(roles.size());
    model_.max_launches = options.max_launches_in_flight;
    model_.max_bytes = options.max_bytes_in_flight;
  }

  JobModel Run() {
    for (uint32_t r = 0; r < roles_.size(); ++r) AddCompute(r);
    AddTransfers();
    AddEdges();
    return std::move(model_);
  }

 private:
  // The nodes of an op: first .. last, pieces in order.
  struct Nodes {
    uint32_t first = Plan::kNone;
    uint32_t last = Plan::kNone;
  };

  int64_t Stretched(const RoleDraft& role, OpId op) const {
    return static_cast<int64_t>(std::llround(
        static_cast<double>(OpCostNs(*role.graph, op, *role.profile)) *
        std::max(1.0, RanksPerCore(*role.profile))));
  }

  void AddCompute(uint32_t r) {
    const RoleDraft& role = roles_[r];
    model_.launch_ns = std::max(model_.launch_ns, role.profile->launch_ns);
    const uint32_t first_lane = static_cast<uint32_t>(model_.lanes.size());
    nodes_.emplace_back(role.graph->ops().size());
    for (uint32_t i = 0; i < role.order->host.size(); ++i) {
      const OpId op = role.order->host[i];
      const ComputeSpec& spec = role.graph->op(op).compute;
      const uint32_t node = model_.num_compute();
      const uint32_t lane = first_lane + spec.lane;
      model_.compute.push_back({.op = op,
                                .role = r,
                                .lane = lane,
                                .position = i,
                                .cpu_ns = Stretched(role, op),
                                .filler = spec.filler});
      if (lane >= model_.lanes.size()) model_.lanes.resize(lane + 1);
      model_.lanes[lane].push_back(node);
      nodes_[r][op.value()] = {node, node};
    }
  }

  void AddTransfers() {
    struct Found {
      uint64_t key;
      uint32_t role, launch;
      auto Order() const { return std::tie(key, role, launch); }
    };
    std::vector<Found> found;
    for (uint32_t r = 0; r < roles_.size(); ++r) {
      for (uint32_t k = 0; k < roles_[r].launches->size(); ++k) {
        found.push_back({(*roles_[r].launches)[k].key, r, k});
      }
    }
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
      return a.Order() < b.Order();
    });
    for (size_t i = 0; i < found.size(); ++i) {
      const bool joins = i > 0 && found[i].key == found[i - 1].key;
      if (!joins) {
        model_.transfers.push_back({});
        model_.transfers.back().first_side =
            static_cast<uint32_t>(model_.sides.size());
      }
      AddSide(found[i].role, found[i].launch);
    }
  }

  void AddSide(uint32_t r, uint32_t k) {
    const RoleDraft& role = roles_[r];
    const Launch& launch = (*role.launches)[k];
    JobModel::Transfer& transfer = model_.transfers.back();
    const uint32_t node = model_.num_nodes() - 1;
    JobModel::Side side{
        .role = r, .launch = k, .ready = 0, .first_need = PlannedOrder::kNone};
    int64_t cpu_ns = 0;
    for (OpId op : launch.members) {
      Nodes& nodes = nodes_[r][op.value()];
      if (nodes.first == Plan::kNone) nodes.first = node;
      nodes.last = node;
      side.ready = std::max(side.ready, role.order->ready[op.value()]);
      side.first_need =
          std::min(side.first_need, role.order->first_need[op.value()]);
      transfer.priority =
          std::max(transfer.priority, role.graph->op(op).priority);
      cpu_ns += Stretched(role, op) / launch.piece.of;
    }
    transfer.cpu_ns = std::max(transfer.cpu_ns, cpu_ns);
    transfer.overhead_ns = std::max(
        transfer.overhead_ns, OverheadNs(*role.graph, launch, *role.profile));
    transfer.link_ns =
        std::max(transfer.link_ns, LinkNs(*role.graph, launch, *role.profile));
    transfer.bytes = std::max(transfer.bytes, launch.weight_bytes);
    model_.sides.push_back(side);
    ++transfer.num_sides;
  }

  template <typename Visitor>
  void ForEachEdge(Visitor visit) const {
    for (uint32_t r = 0; r < roles_.size(); ++r) {
      const std::vector<Nodes>& nodes = nodes_[r];
      for (const Dependency& edge : roles_[r].dependencies->edges) {
        const uint32_t from = nodes[edge.from.value()].last;
        const Nodes to = nodes[edge.to.value()];
        if (from == Plan::kNone || to.first == Plan::kNone) continue;
        for (uint32_t node = to.first; node <= to.last; ++node) {
          visit(from, node, static_cast<uint32_t>(edge.distance));
        }
      }
    }
  }

  void AddEdges() {
    const uint32_t n = model_.num_nodes();
    model_.in_begin.assign(n + 2, 0);
    model_.out_begin.assign(n + 2, 0);
    ForEachEdge([&](uint32_t from, uint32_t to, uint32_t) {
      ++model_.in_begin[to + 2];
      ++model_.out_begin[from + 2];
    });
    for (uint32_t i = 2; i < n + 2; ++i) {
      model_.in_begin[i] += model_.in_begin[i - 1];
      model_.out_begin[i] += model_.out_begin[i - 1];
    }
    model_.in.resize(model_.in_begin.back());
    model_.out.resize(model_.out_begin.back());
    // Entry i + 1 counts up to where entry i ends.
    ForEachEdge([&](uint32_t from, uint32_t to, uint32_t distance) {
      model_.in[model_.in_begin[to + 1]++] = {from, distance};
      model_.out[model_.out_begin[from + 1]++] = {to, distance};
    });
    model_.in_begin.pop_back();
    model_.out_begin.pop_back();
  }

  const absl::Span<const RoleDraft> roles_;
  std::vector<std::vector<Nodes>> nodes_;  // by role, OpId
  JobModel model_;
};

}  // namespace

JobModel ModelJob(absl::Span<const RoleDraft> roles,
                  const PlanOptions& options) {
  return Modeler(roles, options).Run();
}

}  // namespace commsched

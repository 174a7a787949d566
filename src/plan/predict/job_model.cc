#include "plan/predict/job_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

class Modeler {
 public:
  Modeler(absl::Span<const RoleDraft> roles, const PlanOptions& options)
      : roles_(roles) {
    model_.num_roles = static_cast<uint32_t>(roles.size());
    model_.max_launches = options.max_launches_in_flight;
    model_.max_bytes = options.max_bytes_in_flight;
    backend_ = options.backend;
  }

  JobModel Run() {
    ReserveNodes();
    for (uint32_t r = 0; r < roles_.size(); ++r) AddCompute(r);
    AddTransfers();
    AddEdges();
    return std::move(model_);
  }

 private:
  void ReserveNodes() {
    size_t num_compute = 0, num_launches = 0;
    for (const RoleDraft& role : roles_) {
      num_compute += role.order->host.size();
      num_launches += role.launches->size();
    }
    model_.compute.reserve(num_compute);
    model_.transfers.reserve(num_launches);
    model_.sides.reserve(num_launches);
  }

  static int64_t Stretched(const RoleDraft& role, OpId op, double stretch) {
    return static_cast<int64_t>(std::llround(
        static_cast<double>(OpCostNs(*role.graph, op, *role.profile)) *
        stretch));
  }

  static double StretchOf(const RoleDraft& role) {
    int64_t op_ns = 0;
    for (OpId op : role.order->host) {
      op_ns += OpCostNs(*role.graph, op, *role.profile);
    }
    int64_t launch_ns = 0;
    for (const Launch& launch : *role.launches) {
      launch_ns += LaunchCpuNs(*role.graph, launch, *role.profile);
    }
    return CpuStretch(op_ns, launch_ns, *role.profile);
  }

  void AddCompute(uint32_t r) {
    const RoleDraft& role = roles_[r];
    model_.launch_ns = std::max(model_.launch_ns, role.profile->launch_ns);
    const uint32_t first_lane = static_cast<uint32_t>(model_.lanes.size());
    node_of_op_.emplace_back(role.graph->ops().size(), Plan::kNone);
    const double stretch = StretchOf(role);
    for (OpId op : role.order->host) {
      const ComputeSpec& spec = role.graph->op(op).compute;
      const uint32_t node = model_.num_compute();
      const uint32_t lane = first_lane + spec.lane;
      model_.compute.push_back({.op = op,
                                .role = r,
                                .lane = lane,
                                .cpu_ns = Stretched(role, op, stretch)});
      if (lane >= model_.lanes.size()) model_.lanes.resize(lane + 1);
      model_.lanes[lane].push_back(node);
      node_of_op_[r][op.value()] = node;
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
    const double stretch = std::max(1.0, RanksPerCore(*role.profile));
    for (OpId op : launch.members) {
      node_of_op_[r][op.value()] = node;
      side.ready = std::max(side.ready, role.order->ready[op.value()]);
      side.first_need =
          std::min(side.first_need, role.order->first_need[op.value()]);
      transfer.priority =
          std::max(transfer.priority, role.graph->op(op).priority);
      cpu_ns += Stretched(role, op, stretch) / launch.piece.of;
    }
    transfer.cpu_ns = std::max(transfer.cpu_ns, cpu_ns);
    transfer.overhead_ns = std::max(
        transfer.overhead_ns, OverheadNs(*role.graph, launch, *role.profile));
    transfer.link_ns =
        std::max(transfer.link_ns, LinkNs(*role.graph, launch, *role.profile));
    transfer.busy_ns = std::max(
        transfer.busy_ns, BusyNs(*role.graph, launch, *role.profile, backend_));
    transfer.bytes = std::max(transfer.bytes, launch.payload_bytes);
    model_.sides.push_back(side);
    ++transfer.num_sides;
  }

  void AddEdges() {
    size_t num_edges = 0;
    for (const RoleDraft& role : roles_) {
      num_edges += role.dependencies->edges.size();
    }
    model_.in.reserve(num_edges);
    model_.in_begin.reserve(size_t{model_.num_nodes()} + 1);
    for (const JobModel::Compute& compute : model_.compute) {
      BeginNode();
      AddEdgesInto(compute.role, compute.op);
    }
    for (const JobModel::Transfer& transfer : model_.transfers) {
      BeginNode();
      for (const JobModel::Side& side : model_.SidesOf(transfer)) {
        for (OpId op : (*roles_[side.role].launches)[side.launch].members) {
          AddEdgesInto(side.role, op);
        }
      }
    }
    BeginNode();
  }

  void BeginNode() {
    model_.in_begin.push_back(static_cast<uint32_t>(model_.in.size()));
  }

  void AddEdgesInto(uint32_t r, OpId op) {
    for (const Dependency& edge : roles_[r].dependencies->Into(op)) {
      model_.in.push_back({node_of_op_[r][edge.from.value()], edge.distance});
    }
  }

  const absl::Span<const RoleDraft> roles_;
  BackendModel backend_;
  // By role and OpId; a split collective has the node of its last piece.
  std::vector<std::vector<uint32_t>> node_of_op_;
  JobModel model_;
};

}  // namespace

JobModel ModelJob(absl::Span<const RoleDraft> roles,
                  const PlanOptions& options) {
  return Modeler(roles, options).Run();
}

OutEdges OutEdgesOf(const JobModel& model) {
  const uint32_t n = model.num_nodes();
  OutEdges out;
  out.begin.assign(n + 2, 0);
  for (const JobModel::Edge& edge : model.in) ++out.begin[edge.node + 2];
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.edges.resize(model.in.size());
  // Entry i + 1 counts up to where entry i ends.
  for (uint32_t to = 0; to < n; ++to) {
    for (const JobModel::Edge& edge : model.In(to)) {
      out.edges[out.begin[edge.node + 1]++] = {to, edge.distance};
    }
  }
  out.begin.pop_back();
  return out;
}

}  // namespace commsched

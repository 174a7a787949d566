#include "plan/planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/coalesce.h"
#include "plan/cost_model.h"
#include "plan/edge.h"
#include "plan/fingerprint.h"
#include "plan/lanes.h"
#include "plan/markers.h"
#include "plan/order.h"
#include "plan/partition.h"
#include "plan/place.h"
#include "plan/sequence.h"
#include "plan/unsupported.h"
#include "plan/verify.h"
#include "plan/window.h"

namespace commsched {
namespace {

absl::Status CheckOptions(const PlanOptions& options) {
  if (options.num_comm_lanes == 0 || options.num_comm_lanes > kMaxCommLanes) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_comm_lanes is ", options.num_comm_lanes,
                     "; it must be 1 to ", kMaxCommLanes));
  }
  return absl::OkStatus();
}

// Fills Plan::pieces.
void ListPieces(Plan* plan) {
  std::vector<std::pair<OpId, LaunchId>> pieces;
  for (uint32_t k = 0; k < plan->launches.size(); ++k) {
    const Launch& launch = plan->launches[k];
    if (launch.piece.of == 1) continue;
    pieces.emplace_back(launch.members.front(), LaunchId(k));
  }
  std::sort(pieces.begin(), pieces.end());
  for (const auto& [op, launch] : pieces) {
    if (plan->pieces.empty() || plan->pieces.back().first != op) {
      plan->pieces.push_back({op, {}});
    }
    plan->pieces.back().second.push_back(launch);
  }
}

// Nodes in host order, launches in key order, and when each becomes due.
void LayOut(const PlannedOrder& order, Plan* plan) {
  const Graph& graph = *plan->graph;
  plan->node_of_op = order.host_position;
  plan->nodes.resize(order.host.size());
  for (size_t i = 0; i < order.host.size(); ++i) {
    ComputeNode& node = plan->nodes[i];
    node.op = order.host[i];
    node.lane = graph.op(node.op).compute.lane;
    plan->num_compute_lanes = std::max(plan->num_compute_lanes, node.lane + 1);
  }
  plan->num_comm_lanes = plan->options.num_comm_lanes;
  plan->launch_of_op.assign(graph.ops().size(), LaunchId());
  uint32_t due = 0;
  for (uint32_t k = 0; k < plan->launches.size(); ++k) {
    Launch& launch = plan->launches[k];
    launch.lane = launch.group.value() % plan->options.num_comm_lanes;
    for (OpId op : launch.members) {
      plan->launch_of_op[op.value()] = LaunchId(k);
      due = std::max(due, order.ready[op.value()]);
    }
    plan->due_after.push_back(due);
  }
  ListPieces(plan);
}

void SetPlaces(const Arena& arena, Plan* plan) {
  plan->arena_bytes = arena.bytes;
  for (size_t i = 0; i < arena.lifetimes.size(); ++i) {
    const Lifetime& lifetime = arena.lifetimes[i];
    if (lifetime.buffer.valid()) {
      plan->placements.push_back(
          {lifetime.buffer, arena.offsets[i], lifetime.bytes});
    } else {
      Launch& launch = plan->launches[lifetime.launch.value()];
      launch.staging_offset = arena.offsets[i];
      launch.staging_output += arena.offsets[i];
    }
  }
}

void Append(std::vector<Edge> more, std::vector<Edge>* edges) {
  edges->insert(edges->end(), more.begin(), more.end());
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(
    const Graph& graph, const PlanOptions& options,
    const CostProfile& profile) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckSupported(graph));
  RETURN_IF_ERROR(CheckStepBytes(graph));
  RETURN_IF_ERROR(CheckProfile(graph, profile));
  auto plan = std::make_shared<Plan>();
  plan->graph = std::make_shared<const Graph>(graph);
  plan->options = options;
  plan->profile = profile;
  ASSIGN_OR_RETURN(plan->dependencies, InferDependencies(graph));
  DissolveMarkers(graph, &plan->dependencies);

  const PlannedOrder order = OrderOps(graph, plan->dependencies);
  ASSIGN_OR_RETURN(plan->launches, Coalesce(graph, plan->dependencies, order,
                                            options, profile));
  LayOut(order, plan.get());
  const Sequence sequence = SequenceOf(*plan);
  ASSIGN_OR_RETURN(Arena arena, PlaceInArena(*plan, sequence));
  SetPlaces(arena, plan.get());

  std::vector<Edge> edges = HazardEdges(*plan);
  Append(std::move(arena.edges), &edges);
  Append(WindowEdges(*plan), &edges);
  if (options.schedule == Schedule::kSerial) Append(SerialEdges(*plan), &edges);
  AssignWaits(sequence, std::move(edges), plan.get());

  RETURN_IF_ERROR(VerifyPlan(*plan));
  plan->fingerprint = FingerprintOf(*plan);
  return std::shared_ptr<const Plan>(std::move(plan));
}

}  // namespace commsched

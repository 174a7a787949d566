#include "plan/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/coding.h"
#include "plan/cost_model.h"
#include "plan/phases.h"
#include "plan/steady_state.h"

namespace commsched {
namespace {

// The shortest an op can take: on one core, with the link to itself.
std::vector<int64_t> Delays(const Plan& plan, const CostProfile& profile) {
  const Graph& graph = *plan.graph;
  std::vector<int64_t> delays(graph.ops().size());
  for (uint32_t i = 0; i < delays.size(); ++i) {
    delays[i] = OpCostNs(graph, OpId(i), profile);
    const Op& op = graph.ops()[i];
    if (op.kind != OpKind::kCollective) continue;
    // Encoded, less travels than the graph says.
    const CodecModel& codec = plan.options.codec;
    const CollectiveSpec& spec = op.collective;
    if (IsCoded(graph, spec, codec)) {
      const CodedSides sides = CodedSidesOf(graph, spec, codec);
      delays[i] = std::max(
          delays[i], LinkNs(spec.kind, graph.group(spec.group).size,
                            std::max(sides.input, sides.output), profile));
    } else {
      delays[i] = std::max(delays[i], LinkNs(graph, spec, profile));
    }
  }
  return delays;
}

// Earliest times of all ops, step after step, under the graph's dependencies
// and the order of each compute lane alone. Their growth per step is the
// largest delay / distance over all cycles.
int64_t LongestCycle(const Plan& plan, const CostProfile& profile) {
  const Graph& graph = *plan.graph;
  const std::vector<int64_t> delays = Delays(plan, profile);
  const std::vector<Dependency>& edges = plan.dependencies.edges;
  std::vector<uint32_t> first(graph.ops().size() + 1, 0);
  for (const Dependency& edge : edges) ++first[edge.to.value() + 1];
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];

  std::vector<int64_t> before(graph.ops().size(), 0);
  std::vector<int64_t> now(graph.ops().size(), 0);
  std::vector<int64_t> lane_free(plan.num_compute_lanes, 0);
  SteadyState steady;
  do {
    std::swap(before, now);
    for (OpId op : plan.dependencies.order) {
      const uint32_t i = op.value();
      int64_t start = 0;
      for (uint32_t e = first[i]; e < first[i + 1]; ++e) {
        const uint32_t from = edges[e].from.value();
        start =
            std::max(start, edges[e].distance == 0 ? now[from] : before[from]);
      }
      if (graph.op(op).kind == OpKind::kCollective) {
        now[i] = start + delays[i];
        continue;
      }
      int64_t& free = lane_free[graph.op(op).compute.lane];
      now[i] = free = std::max(start, free) + delays[i];
    }
  } while (!steady.Add(now));
  return steady.Period();
}

}  // namespace

double RanksPerCore(const CostProfile& profile) {
  return static_cast<double>(std::max(1u, profile.num_ranks_sharing)) /
         std::max(1u, profile.num_cores);
}

LowerBound LowerBoundOf(const Plan& plan, const CostProfile& profile) {
  LowerBound bound;
  int64_t cpu_ns = 0;
  for (uint32_t i = 0; i < plan.graph->ops().size(); ++i) {
    cpu_ns += OpCostNs(*plan.graph, OpId(i), profile);
  }
  bound.compute_ns = static_cast<int64_t>(
      std::floor(static_cast<double>(cpu_ns) * RanksPerCore(profile)));
  for (const Launch& launch : plan.launches) {
    bound.link_ns += LinkNs(*plan.graph, launch, profile);
  }
  bound.cycle_ns = LongestCycle(plan, profile);
  bound.phases_ns = PhasesBound(plan, profile);
  bound.step_ns = std::max(
      {bound.compute_ns, bound.link_ns, bound.cycle_ns, bound.phases_ns});
  return bound;
}

}  // namespace commsched

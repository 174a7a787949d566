#include "plan/predict/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/predict/cost_model.h"
#include "plan/predict/cycle_bound.h"
#include "plan/predict/phases.h"

namespace commsched {
namespace {

// Busy time of the busier direction of a rank's link. Sends use one, receives
// the other; all else uses both.
int64_t LinkBound(const Plan& plan, const CostProfile& profile) {
  const Graph& graph = *plan.graph;
  int64_t both_ns = 0, out_ns = 0, in_ns = 0;
  for (const Launch& launch : plan.launches) {
    if (launch.kind != CollectiveKind::kSend) {
      both_ns += BusyNs(graph, launch, profile);
      continue;
    }
    for (OpId op : launch.members) {
      const CollectiveSpec& spec = graph.op(op).collective;
      (spec.kind == CollectiveKind::kRecv ? in_ns : out_ns) +=
          BusyNs(graph, spec, profile);
    }
  }
  return both_ns + std::max(out_ns, in_ns);
}

}  // namespace

int64_t ComputeBound(const Plan& plan, const CostProfile& profile) {
  int64_t cpu_ns = 0;
  for (uint32_t i = 0; i < plan.graph->ops().size(); ++i) {
    cpu_ns += OpCostNs(*plan.graph, OpId(i), profile);
  }
  return static_cast<int64_t>(
      std::floor(static_cast<double>(cpu_ns) * RanksPerCore(profile)));
}

std::vector<LowerBound> LowerBoundsOf(absl::Span<const PlayedRole> roles) {
  const int64_t cycle_ns = LongestCycle(roles);
  std::vector<LowerBound> bounds;
  int64_t step_ns = cycle_ns;
  for (const PlayedRole& role : roles) {
    const Plan& plan = *role.plan;
    LowerBound bound;
    bound.compute_ns = ComputeBound(plan, *role.profile);
    bound.link_ns = LinkBound(plan, *role.profile);
    bound.cycle_ns = cycle_ns;
    bound.phases_ns = PhasesBound(plan, *role.profile);
    step_ns =
        std::max({step_ns, bound.compute_ns, bound.link_ns, bound.phases_ns});
    bounds.push_back(bound);
  }
  for (LowerBound& bound : bounds) bound.step_ns = step_ns;
  return bounds;
}

LowerBound LowerBoundOf(const Plan& plan, const CostProfile& profile) {
  return LowerBoundsOf({{&plan, &profile}}).front();
}

}  // namespace commsched

// Short cuts of the plan room's tests.
#ifndef COMMSCHED_TEST_PLAN_PLAN_TEST_SUPPORT_H_
#define COMMSCHED_TEST_PLAN_PLAN_TEST_SUPPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plan/explain/names.h"
#include "plan/planner.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched::test {

inline PlanOptions Merging(uint64_t bytes) {
  PlanOptions options;
  options.coalesce_bytes = bytes;
  return options;
}

// A link on which an all-reduce between two ranks takes 1 ns per byte, and
// nothing else costs anything.
inline CostProfile PlainLink() {
  CostProfile profile;
  profile.link_bytes_per_s = 1e9;
  profile.launch_ns = 0;
  return profile;
}

// The plan, or a failed test and a null pointer.
inline std::shared_ptr<const Plan> MakePlan(const Graph& graph,
                                            const PlanOptions& options = {},
                                            const CostProfile& profile = {}) {
  auto plan = BuildPlan(graph, options, profile);
  EXPECT_OK(plan);
  return plan.ok() ? *plan : nullptr;
}

inline std::vector<std::string> Names(const Graph& graph,
                                      absl::Span<const OpId> ops) {
  std::vector<std::string> names;
  for (OpId op : ops) names.push_back(graph.op(op).name);
  return names;
}

// "a+b" per launch, in key order.
inline std::vector<std::string> LaunchNames(const Plan& plan) {
  std::vector<std::string> names;
  for (const Launch& launch : plan.launches) {
    std::string name;
    for (const std::string& each : Names(*plan.graph, launch.members)) {
      name += (name.empty() ? "" : "+") + each;
    }
    names.push_back(name);
  }
  return names;
}

// The waits of an op, or of the launch that carries it, as WaitName spells
// them.
inline std::vector<std::string> Waits(const Plan& plan,
                                      const std::string& name) {
  const OpId op = *plan.graph->FindOp(name);
  const LaunchId launch = plan.launch_of_op[op.value()];
  std::vector<std::string> names;
  for (const Wait& wait : launch.valid()
                              ? plan.launches[launch.value()].waits
                              : plan.nodes[plan.node_of_op[op.value()]].waits) {
    names.push_back(WaitName(plan, wait));
  }
  return names;
}

inline ComputeSpec OnLane(uint32_t lane, int64_t cost_ns = 0) {
  ComputeSpec spec;
  spec.lane = lane;
  spec.cost_ns = cost_ns;
  return spec;
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_PLAN_PLAN_TEST_SUPPORT_H_

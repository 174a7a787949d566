#include "plan/sequence.h"

#include "plan/edge.h"

namespace commsched {

Sequence SequenceOf(const Plan& plan) {
  Sequence sequence;
  sequence.nodes.reserve(plan.nodes.size() + plan.launches.size());
  sequence.of_op.assign(plan.graph->ops().size(), Plan::kNone);
  sequence.of_launch.assign(plan.launches.size(), Plan::kNone);
  uint32_t launch = 0;
  auto add_due = [&](uint32_t num_called) {
    for (;
         launch < plan.launches.size() && plan.due_after[launch] <= num_called;
         ++launch) {
      const uint32_t position = static_cast<uint32_t>(sequence.nodes.size());
      sequence.of_launch[launch] = position;
      for (OpId op : plan.launches[launch].members) {
        sequence.of_op[op.value()] = position;
      }
      sequence.nodes.push_back(RefOf(LaunchId(launch)));
    }
  };
  for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
    add_due(i);
    sequence.of_op[plan.nodes[i].op.value()] =
        static_cast<uint32_t>(sequence.nodes.size());
    sequence.nodes.push_back(RefOf(plan.nodes[i].op));
  }
  add_due(Plan::kNone);
  return sequence;
}

}  // namespace commsched

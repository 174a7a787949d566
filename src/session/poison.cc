#include "session/poison.h"

#include <algorithm>

#include "absl/types/span.h"

namespace commsched {
namespace {

// Steps of which all launches are complete: nothing before them is of interest.
uint64_t CompleteSteps(const Plan& plan, const ProgressAtFailure& progress) {
  uint64_t complete = progress.steps_begun;
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    complete = std::min(complete, progress.completed(LaunchId(i)));
  }
  return complete;
}

// Whether `op` of the step of `generation` has not done its work in full.
bool IsPoisoned(const Plan& plan, const ProgressAtFailure& progress, OpId op,
                uint64_t generation, bool depends_on_poison) {
  const absl::Span<const LaunchId> launches = plan.LaunchesOf(op);
  if (!launches.empty()) {
    return std::any_of(launches.begin(), launches.end(), [&](LaunchId launch) {
      return progress.completed(launch) < generation;
    });
  }
  const uint32_t node = plan.node_of_op[op.value()];
  if (node == Plan::kNone) return depends_on_poison;  // a marker
  return depends_on_poison && progress.unguarded(node) >= generation;
}

// Whether a launch that the node waits for, for whatever cause, is not
// complete: set free, its work may come before other work that it relies on
// that launch to come after.
bool WaitsForIncomplete(const Plan& plan, const ProgressAtFailure& progress,
                        OpId op, uint64_t generation) {
  const uint32_t node = plan.node_of_op[op.value()];
  if (node == Plan::kNone) return false;
  const auto& waits = plan.nodes[node].waits;
  return std::any_of(waits.begin(), waits.end(), [&](const Wait& wait) {
    return wait.producer.kind == NodeRef::Kind::kLaunch &&
           progress.completed(LaunchId(wait.producer.index)) +
                   static_cast<uint64_t>(wait.distance) <
               generation;
  });
}

}  // namespace

std::vector<bool> PoisonedBuffers(const Plan& plan,
                                  const ProgressAtFailure& progress) {
  const Graph& graph = *plan.graph;
  const std::vector<Dependency>& edges = plan.dependencies.edges;
  std::vector<bool> buffers(graph.buffers().size());
  std::vector<bool> before(graph.ops().size());  // poisoned in the last step
  std::vector<bool> now(graph.ops().size());
  for (uint64_t generation = CompleteSteps(plan, progress) + 1;
       generation <= progress.steps_begun; ++generation) {
    std::fill(now.begin(), now.end(), false);
    for (OpId op : plan.dependencies.order) {
      // Edges are sorted by `to`.
      auto edge = std::lower_bound(
          edges.begin(), edges.end(), op,
          [](const Dependency& e, OpId to) { return e.to < to; });
      bool depends = WaitsForIncomplete(plan, progress, op, generation);
      for (; edge != edges.end() && edge->to == op; ++edge) {
        depends |= edge->distance == 0 ? now[edge->from.value()]
                                       : before[edge->from.value()];
      }
      if (!IsPoisoned(plan, progress, op, generation, depends)) continue;
      now[op.value()] = true;
      for (const Access& access : graph.op(op).accesses) {
        if (Writes(access.mode)) buffers[access.buffer.value()] = true;
      }
    }
    std::swap(before, now);
  }
  return buffers;
}

}  // namespace commsched

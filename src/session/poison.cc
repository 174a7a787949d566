#include "session/poison.h"

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"
#include "session/freed_work.h"

namespace commsched {
namespace {

// Work of streams may be that many steps behind the launches.
constexpr uint64_t kMaxLag = 4;

// Steps of which all launches are complete.
uint64_t CompleteSteps(const ProgressAtFailure& progress) {
  uint64_t complete = progress.steps_begun;
  for (uint64_t of_launch : progress.completed) {
    complete = std::min(complete, of_launch);
  }
  return complete;
}

// Whether `op` of the step of `generation` has not done its work in full.
bool IsPoisoned(const Plan& plan, const ProgressAtFailure& progress, OpId op,
                uint64_t generation, bool depends_on_poison) {
  const absl::Span<const LaunchId> launches = plan.LaunchesOf(op);
  if (!launches.empty()) {
    return std::any_of(launches.begin(), launches.end(), [&](LaunchId launch) {
      return progress.completed[launch.value()] < generation;
    });
  }
  const uint32_t node = plan.node_of_op[op.value()];
  return depends_on_poison && progress.unguarded[node] >= generation;
}

}  // namespace

std::vector<bool> PoisonedBuffers(const Plan& plan,
                                  const ProgressAtFailure& progress) {
  const Graph& graph = *plan.graph;
  const std::vector<Dependency>& edges = plan.dependencies.edges;
  std::vector<bool> buffers(graph.buffers().size());
  std::vector<bool> before(graph.ops().size());  // poisoned in the last step
  std::vector<bool> now(graph.ops().size());
  const uint64_t complete = CompleteSteps(progress);
  const uint64_t first = complete < kMaxLag ? 1 : complete + 1 - kMaxLag;
  const std::vector<std::vector<bool>> spoiled =
      SpoiledByFreedWork(plan, progress, first);
  for (uint64_t generation = first; generation <= progress.steps_begun;
       ++generation) {
    std::fill(now.begin(), now.end(), false);
    for (OpId op : plan.dependencies.order) {
      // Edges are sorted by `to`.
      auto edge = std::lower_bound(
          edges.begin(), edges.end(), op,
          [](const Dependency& e, OpId to) { return e.to < to; });
      bool depends =
          spoiled[static_cast<size_t>(generation - first)][op.value()];
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

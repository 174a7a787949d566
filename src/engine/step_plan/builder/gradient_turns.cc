#include "engine/step_plan/builder/gradient_turns.h"

#include <algorithm>
#include <ranges>
#include <tuple>

namespace commsched::engine {
namespace {

struct TurnOfWindow {
  GradientTurn turn;
  uint32_t last = 0;  // Pass of its window.
};

// Takes the buckets last first, as they are reduced.
std::vector<TurnOfWindow> TurnsByBucket(const StepSpec& spec,
                                        const Layout& layout,
                                        const std::vector<Windows>& windows,
                                        const StepGraph& graph) {
  const auto num_passes = static_cast<uint32_t>(graph.passes.size());
  std::vector<TurnOfWindow> turns;
  for (uint32_t b : std::views::reverse(graph.first_use)) {
    const Bucket& bucket = layout.buckets[b];
    if (!spec.offloads_gradients_of(bucket)) continue;
    const std::vector<Window>& all = windows[b].all();
    for (const Window& window : all) {
      const bool first = &window == &all.front();
      if (!bucket.reduced_at_once && &window != &all.back()) continue;
      GradientTurn turn;
      turn.bucket = b;
      turn.micro_batch = window.micro_batch;
      turn.adds = bucket.reduced_at_once && (!first || spec.adds_first(bucket));
      turn.first = turn.adds && first;
      turn.num_passes = window.last + 1;
      if (turn.adds) {
        turn.num_passes =
            std::min(num_passes, turn.num_passes + kReductionPasses);
      }
      turns.push_back({turn, window.last});
    }
  }
  return turns;
}

}  // namespace

std::vector<GradientTurn> FindGradientTurns(const StepSpec& spec,
                                            const Layout& layout,
                                            const std::vector<Windows>& windows,
                                            const StepGraph& graph) {
  std::vector<TurnOfWindow> in_order =
      TurnsByBucket(spec, layout, windows, graph);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const TurnOfWindow& a, const TurnOfWindow& b) {
                     return std::tie(a.turn.num_passes, a.turn.adds, a.last) <
                            std::tie(b.turn.num_passes, b.turn.adds, b.last);
                   });
  std::vector<GradientTurn> turns;
  std::vector<uint32_t> last_in_slot(layout.gradient_slots, kNoId);
  for (const TurnOfWindow& each : in_order) {
    const auto index = static_cast<uint32_t>(turns.size());
    turns.push_back(each.turn);
    uint32_t& before =
        last_in_slot[graph.buckets[each.turn.bucket].gradient_slot];
    if (each.turn.adds && !each.turn.first &&
        turns[before].bucket != each.turn.bucket) {
      turns[before].fetches_for = index;
    }
    before = index;
  }
  return turns;
}

}  // namespace commsched::engine

#include "engine/step_plan/accumulation.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace commsched::engine {
namespace {

// Buckets that accumulate, and the time on the link that this saves per
// micro-batch.
struct Choice {
  std::vector<uint32_t> buckets;
  double saved_ns = 0;
};

// As many as fit, in the order given.
Choice Take(const AccumulationCosts& costs, const Layout& layout,
            const std::vector<uint32_t>& order) {
  Choice choice;
  uint64_t left = costs.budget_bytes;
  for (uint32_t b : order) {
    const uint64_t count = layout.buckets[b].count;
    if (count * costs.element_bytes > left) continue;
    left -= count * costs.element_bytes;
    choice.buckets.push_back(b);
    choice.saved_ns += static_cast<double>(costs.latency_ns) +
                       static_cast<double>(count * costs.sent_element_bytes) /
                           costs.bytes_per_s * 1e9;
  }
  return choice;
}

}  // namespace

void ChooseAccumulation(const AccumulationCosts& costs, Layout* layout) {
  for (Bucket& bucket : layout->buckets) {
    bucket.reduced_at_once = costs.budget_bytes != 0;
  }
  if (costs.budget_bytes == 0) return;
  std::vector<uint32_t> order(layout->buckets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return layout->buckets[a].count > layout->buckets[b].count;
  });
  const Choice largest = Take(costs, *layout, order);
  std::reverse(order.begin(), order.end());
  const Choice smallest = Take(costs, *layout, order);
  const Choice& best =
      smallest.saved_ns > largest.saved_ns ? smallest : largest;
  for (uint32_t b : best.buckets) layout->buckets[b].reduced_at_once = false;
}

}  // namespace commsched::engine

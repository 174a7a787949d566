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

// Takes as many as fit, in the order given.
Choice Take(const AccumulationCosts& costs, const Layout& layout,
            const std::vector<uint32_t>& order) {
  Choice choice;
  uint64_t left = costs.budget_bytes;
  for (uint32_t b : order) {
    const uint64_t count = layout.buckets[b].count;
    if (layout.buckets[b].frozen) continue;
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
    bucket.reduced_at_once = costs.budget_bytes != 0 && !bucket.frozen;
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

Windows::Windows(const std::vector<uint32_t>& passes,
                 const std::vector<Pass>& all, bool by_micro_batch) {
  for (uint32_t i : passes) {
    const uint32_t mb = all[i].micro_batch;
    const uint32_t place = by_micro_batch ? mb : 0;
    if (of_micro_batch_.size() <= place) {
      of_micro_batch_.resize(place + 1, ~uint32_t{0});
    }
    uint32_t& at = of_micro_batch_[place];
    if (at == ~uint32_t{0}) {
      at = static_cast<uint32_t>(windows_.size());
      windows_.push_back({mb, i, i});
    }
    windows_[at].last = i;
  }
  std::sort(windows_.begin(), windows_.end(),
            [](const Window& a, const Window& b) { return a.last < b.last; });
  if (!by_micro_batch) return;
  for (uint32_t at = 0; at < windows_.size(); ++at) {
    of_micro_batch_[windows_[at].micro_batch] = at;
  }
}

bool Windows::Overlap() const {
  for (size_t i = 1; i < windows_.size(); ++i) {
    if (windows_[i].first < windows_[i - 1].last) return true;
  }
  return false;
}

std::vector<Windows> FindWindows(const StepSpec& spec, const Layout& layout,
                                 const std::vector<Pass>& passes) {
  std::vector<std::vector<uint32_t>> adding(layout.buckets.size());
  for (uint32_t i = 0; i < passes.size(); ++i) {
    if (!AddsGradients(passes[i].kind)) continue;
    for (uint32_t b : layout.module_buckets[passes[i].module]) {
      if (!layout.buckets[b].frozen) adding[b].push_back(i);
    }
  }
  std::vector<Windows> windows;
  for (size_t b = 0; b < adding.size(); ++b) {
    windows.emplace_back(adding[b], passes,
                         spec.begins_anew(layout.buckets[b]));
  }
  return windows;
}

void FindInterleaved(const StepSpec& spec, const std::vector<Pass>& passes,
                     Layout* layout) {
  const std::vector<Windows> windows = FindWindows(spec, *layout, passes);
  for (size_t b = 0; b < windows.size(); ++b) {
    layout->buckets[b].interleaved = windows[b].Overlap();
  }
}

}  // namespace commsched::engine

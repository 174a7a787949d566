#include "step_needs.h"

#include <algorithm>
#include <vector>

namespace commsched::engine {
namespace {

// Of module ops: the backwards that make what one reduction takes.
struct Span {
  size_t first = 0;
  size_t last = 0;
};

}  // namespace

LiveNeeds NeedsOfStep(const StepSpec& spec, const Layout& layout,
                      uint32_t reduction_ops) {
  const std::vector<ModuleOp> ops = ModuleOrder(
      static_cast<uint32_t>(layout.module_buckets.size()), spec.micro_batches);
  const size_t num_buckets = layout.buckets.size();
  LiveNeeds needs;
  needs.used.resize(ops.size());
  needs.other_bytes.resize(ops.size());
  std::vector<std::vector<Span>> backwards(num_buckets);
  for (size_t i = 0; i < ops.size(); ++i) {
    for (uint32_t b : layout.module_buckets[ops[i].module]) {
      if (spec.gathers(layout.buckets[b])) needs.used[i].push_back(b);
      if (!ops[i].backward) continue;
      const size_t reduction =
          layout.buckets[b].reduced_at_once ? ops[i].micro_batch : 0;
      if (backwards[b].size() == reduction) backwards[b].push_back({i, i});
      backwards[b].back().last = i;
    }
  }
  for (size_t b = 0; b < num_buckets; ++b) {
    const uint64_t bytes = layout.buckets[b].count * sizeof(float);
    needs.bucket_bytes.push_back(bytes);
    for (const Span& span : backwards[b]) {
      const size_t end = std::min(ops.size(), span.last + reduction_ops + 1);
      for (size_t i = span.first; i < end; ++i) needs.other_bytes[i] += bytes;
    }
  }
  return needs;
}

}  // namespace commsched::engine

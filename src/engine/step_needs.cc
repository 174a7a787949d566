#include "step_needs.h"

#include <algorithm>
#include <vector>

namespace commsched::engine {

LiveNeeds NeedsOfStep(const StepSpec& spec, const Layout& layout,
                      uint32_t reduction_ops) {
  const std::vector<ModuleOp> ops = ModuleOrder(
      static_cast<uint32_t>(layout.module_buckets.size()), spec.micro_batches);
  const size_t num_buckets = layout.buckets.size();
  LiveNeeds needs;
  needs.used.resize(ops.size());
  needs.other_bytes.resize(ops.size());
  std::vector<size_t> first_backward(num_buckets, ops.size());
  std::vector<size_t> last_backward(num_buckets, 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    for (uint32_t b : layout.module_buckets[ops[i].module]) {
      if (spec.gathers(layout.buckets[b])) needs.used[i].push_back(b);
      if (!ops[i].backward) continue;
      first_backward[b] = std::min(first_backward[b], i);
      last_backward[b] = i;
    }
  }
  for (size_t b = 0; b < num_buckets; ++b) {
    const uint64_t bytes = layout.buckets[b].count * sizeof(float);
    needs.bucket_bytes.push_back(bytes);
    const size_t end =
        std::min(ops.size(), last_backward[b] + reduction_ops + 1);
    for (size_t i = first_backward[b]; i < end; ++i) {
      needs.other_bytes[i] += bytes;
    }
  }
  return needs;
}

}  // namespace commsched::engine

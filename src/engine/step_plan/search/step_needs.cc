#include "engine/step_plan/search/step_needs.h"

#include <algorithm>
#include <vector>

#include "engine/step_plan/accumulation.h"
#include "engine/step_plan/bucket_buffers.h"

namespace commsched::engine {
namespace {

// Adds `bytes` to what is alive from the op `first` to the op `last`.
void AddAlive(size_t first, size_t last, uint64_t bytes, LiveNeeds* needs) {
  const size_t end = std::min(needs->other_bytes.size(), last + 1);
  for (size_t i = first; i < end; ++i) needs->other_bytes[i] += bytes;
}

// Adds the gradients of a bucket: those that backward adds to, their sum, the
// copy that travels, and what is to be added to an offloaded sum. `backwards`
// are the passes that add up in one place.
void AddGradients(const StepSpec& spec, const Bucket& bucket,
                  const std::vector<Window>& backwards, uint32_t reduction_ops,
                  LiveNeeds* needs) {
  if (backwards.empty()) return;
  const std::vector<BucketBuffer> rows = BuffersOfBucket(spec, bucket);
  const BucketBuffer* const gradients =
      FindBuffer(rows, BufferKind::kGradients);
  const BucketBuffer* const sum = FindBuffer(rows, BufferKind::kAccumulated);
  const BucketBuffer* const sent = FindBuffer(rows, BufferKind::kSent);
  const uint32_t sent_in_place =
      sent != nullptr || sum != nullptr ? 0 : reduction_ops;
  for (const Window& window : backwards) {
    AddAlive(window.first, window.last + sent_in_place, gradients->bytes(),
             needs);
    if (sent == nullptr || (sum != nullptr && &window != &backwards.back())) {
      continue;
    }
    AddAlive(window.last, window.last + reduction_ops, sent->bytes(), needs);
  }
  const BucketBuffer* const summand = FindBuffer(rows, BufferKind::kSummand);
  if (summand != nullptr && summand->ownership == COMMSCHED_OWNED) {
    for (const Window& window : backwards) {
      if (&window == &backwards.front() && !spec.adds_first(bucket)) continue;
      AddAlive(window.last, window.last + kReductionPasses, summand->bytes(),
               needs);
    }
  }
  if (sum == nullptr) return;
  AddAlive(backwards.front().last,
           backwards.back().last + (sent != nullptr ? 0 : reduction_ops),
           sum->bytes(), needs);
}

}  // namespace

LiveNeeds NeedsOfStep(const StepSpec& spec, const Layout& layout,
                      const std::vector<Pass>& passes, uint32_t reduction_ops) {
  const size_t num_buckets = layout.buckets.size();
  LiveNeeds needs;
  needs.used.resize(passes.size());
  needs.other_bytes.resize(passes.size());
  const std::vector<Windows> windows = FindWindows(spec, layout, passes);
  for (size_t i = 0; i < passes.size(); ++i) {
    if (!ReadsValues(passes[i].kind)) continue;
    for (uint32_t b : layout.module_buckets[passes[i].module]) {
      if (spec.gathers(layout.buckets[b])) needs.used[i].push_back(b);
    }
  }
  for (size_t b = 0; b < num_buckets; ++b) {
    const Bucket& bucket = layout.buckets[b];
    needs.bucket_bytes.push_back(bucket.count * SizeOf(bucket.dtype));
    AddGradients(spec, bucket, windows[b].all(), reduction_ops, &needs);
  }
  return needs;
}

}  // namespace commsched::engine

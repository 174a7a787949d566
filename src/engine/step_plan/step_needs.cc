#include "engine/step_plan/step_needs.h"

#include <algorithm>
#include <vector>

namespace commsched::engine {
namespace {

// Of passes: the backwards that add up in one place.
struct Span {
  size_t first = 0;
  size_t last = 0;
};

// Adds `bytes` to what is alive from the op `first` to the op `last`.
void AddAlive(size_t first, size_t last, uint64_t bytes, LiveNeeds* needs) {
  const size_t end = std::min(needs->other_bytes.size(), last + 1);
  for (size_t i = first; i < end; ++i) needs->other_bytes[i] += bytes;
}

// The gradients of a bucket: those that backward adds to, their sum, and the
// copy that travels. `backwards`: of what adds up in place.
void AddGradients(const StepSpec& spec, const Bucket& bucket,
                  const std::vector<Span>& backwards, uint32_t reduction_ops,
                  LiveNeeds* needs) {
  if (backwards.empty()) return;
  const bool folds = spec.folds(bucket);
  const bool casts = spec.casts(bucket);
  const Precision& precision = spec.precision;
  const uint32_t sent_in_place = casts || folds ? 0 : reduction_ops;
  for (const Span& span : backwards) {
    AddAlive(span.first, span.last + sent_in_place,
             bucket.count * SizeOf(precision.parameters), needs);
    if (!casts || (folds && &span != &backwards.back())) continue;
    AddAlive(span.last, span.last + reduction_ops,
             bucket.count * SizeOf(precision.reduced), needs);
  }
  if (!folds) return;
  AddAlive(backwards.front().last,
           backwards.back().last + (casts ? 0 : reduction_ops),
           bucket.count * SizeOf(kSumDType), needs);
}

}  // namespace

LiveNeeds NeedsOfStep(const StepSpec& spec, const Layout& layout,
                      const std::vector<Pass>& passes, uint32_t reduction_ops) {
  const size_t num_buckets = layout.buckets.size();
  LiveNeeds needs;
  needs.used.resize(passes.size());
  needs.other_bytes.resize(passes.size());
  std::vector<std::vector<Span>> backwards(num_buckets);
  for (size_t i = 0; i < passes.size(); ++i) {
    for (uint32_t b : layout.module_buckets[passes[i].module]) {
      if (spec.gathers(layout.buckets[b])) needs.used[i].push_back(b);
      if (!passes[i].backward) continue;
      const size_t span =
          spec.begins_anew(layout.buckets[b]) ? passes[i].micro_batch : 0;
      if (backwards[b].size() == span) backwards[b].push_back({i, i});
      backwards[b].back().last = i;
    }
  }
  for (size_t b = 0; b < num_buckets; ++b) {
    const Bucket& bucket = layout.buckets[b];
    needs.bucket_bytes.push_back(bucket.count *
                                 SizeOf(spec.precision.parameters));
    AddGradients(spec, bucket, backwards[b], reduction_ops, &needs);
  }
  return needs;
}

}  // namespace commsched::engine

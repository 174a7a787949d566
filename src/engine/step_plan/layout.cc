#include "engine/step_plan/layout.h"

#include <algorithm>
#include <numeric>

namespace commsched::engine {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Ids of the parameters, by owner; registration order within one owner.
std::vector<uint32_t> FirstUseOrder(const std::vector<Parameter>& parameters) {
  std::vector<uint32_t> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return parameters[a].module < parameters[b].module;
  });
  return order;
}

std::vector<uint32_t> BucketsOf(const Module& module, const Layout& layout) {
  std::vector<uint32_t> buckets;
  for (uint32_t parameter : module.used) {
    buckets.push_back(layout.slots[parameter].bucket);
  }
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  return buckets;
}

// Where in `order` the last bucket begins, if its parameters take up to `limit`
// elements: at least the last one.
size_t BeginOfLastBucket(const std::vector<uint32_t>& order,
                         const std::vector<Parameter>& parameters,
                         uint64_t limit) {
  size_t begin = order.size();
  uint64_t count = 0;
  while (begin > 0) {
    count += RoundUp(parameters[order[begin - 1]].count, kBlockElements);
    if (count > limit && begin < order.size()) break;
    --begin;
  }
  return begin;
}

// Whether the shards of its bucket must not end within it.
bool IsWhole(const Parameter& parameter, const LayoutOptions& options) {
  return options.whole_tensors || parameter.atomic;
}

// Places the parameters of `bucket` so that no multiple of `shard` elements is
// within one that is whole, and returns where the last one ends.
uint64_t PlaceWhole(const Bucket& bucket,
                    const std::vector<Parameter>& parameters,
                    const LayoutOptions& options, uint64_t shard,
                    std::vector<Slot>* slots) {
  uint64_t end = 0;
  for (uint32_t id : bucket.parameters) {
    uint64_t offset = RoundUp(end, kBlockElements);
    if (IsWhole(parameters[id], options) &&
        offset % shard + parameters[id].count > shard) {
      offset = RoundUp(offset, shard);
    }
    (*slots)[id].offset = offset;
    end = offset + parameters[id].count;
  }
  return end;
}

// In shards that are as small as the order of the parameters allows.
void KeepWhole(const std::vector<Parameter>& parameters,
               const LayoutOptions& options, Bucket* bucket,
               std::vector<Slot>* slots) {
  uint64_t shard = bucket->count / options.num_shards;
  for (uint32_t id : bucket->parameters) {
    if (!IsWhole(parameters[id], options)) continue;
    shard = std::max(shard, RoundUp(parameters[id].count, kBlockElements));
  }
  while (PlaceWhole(*bucket, parameters, options, shard, slots) >
         shard * options.num_shards) {
    shard += kBlockElements;
  }
  bucket->count = shard * options.num_shards;
}

// The bucket that the next parameter of its kind may join.
struct OpenBucket {
  static constexpr size_t kNone = ~size_t{0};
  size_t bucket = kNone;
  uint64_t end = 0;  // Of its last parameter.
};

}  // namespace

uint64_t Layout::padded_elements() const {
  uint64_t total = 0;
  for (const Bucket& bucket : buckets) total += bucket.count;
  return total;
}

std::vector<uint32_t> Layout::BucketsOf(
    const std::vector<uint32_t>& parameters) const {
  std::vector<uint32_t> found;
  for (uint32_t parameter : parameters)
    found.push_back(slots[parameter].bucket);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Layout BuildLayout(const std::vector<Module>& modules,
                   const std::vector<Parameter>& parameters,
                   const LayoutOptions& options) {
  const uint64_t limit = options.bucket_bytes / sizeof(float);
  const uint64_t edge_limit =
      options.edge_bytes == 0
          ? limit
          : std::min(limit, options.edge_bytes / sizeof(float));
  const std::vector<uint32_t> order = FirstUseOrder(parameters);
  const size_t last_bucket =
      options.edge_bytes == 0
          ? order.size()
          : BeginOfLastBucket(order, parameters, edge_limit);
  Layout layout;
  layout.slots.resize(parameters.size());
  OpenBucket open[2];  // Of gathered and of resident parameters.
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t id = order[i];
    const Parameter& parameter = parameters[id];
    const bool resident =
        parameter.count * sizeof(float) < options.persist_bytes;
    if (i == last_bucket) open[0] = open[1] = OpenBucket();
    OpenBucket& into = open[resident ? 1 : 0];
    uint64_t offset = RoundUp(into.end, kBlockElements);
    const bool edge = into.bucket == 0 || i >= last_bucket;
    if (into.bucket == OpenBucket::kNone ||
        offset + parameter.count > (edge ? edge_limit : limit)) {
      into.bucket = layout.buckets.size();
      layout.buckets.emplace_back();
      layout.buckets.back().resident = resident;
      offset = 0;
    }
    Bucket& bucket = layout.buckets[into.bucket];
    bucket.parameters.push_back(id);
    into.end = offset + parameter.count;
    bucket.count = RoundUp(into.end, options.num_shards * kBlockElements);
    layout.slots[id] = {static_cast<uint32_t>(into.bucket), offset};
    layout.num_elements += parameter.count;
  }
  for (Bucket& bucket : layout.buckets) {
    KeepWhole(parameters, options, &bucket, &layout.slots);
  }
  for (const Module& module : modules) {
    layout.module_buckets.push_back(BucketsOf(module, layout));
  }
  return layout;
}

std::vector<Segment> ShardSegments(const Layout& layout,
                                   const std::vector<Parameter>& parameters,
                                   uint32_t bucket, uint64_t shard,
                                   uint64_t num_shards) {
  const uint64_t shard_count = layout.buckets[bucket].count / num_shards;
  const uint64_t shard_begin = shard * shard_count;
  const uint64_t shard_end = shard_begin + shard_count;
  std::vector<Segment> segments;
  for (uint32_t id : layout.buckets[bucket].parameters) {
    const uint64_t offset = layout.slots[id].offset;
    const uint64_t begin = std::max(offset, shard_begin);
    const uint64_t end = std::min(offset + parameters[id].count, shard_end);
    if (begin >= end) continue;
    segments.push_back({id, begin, begin - shard_begin, end - begin});
  }
  return segments;
}

}  // namespace commsched::engine

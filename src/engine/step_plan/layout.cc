#include "engine/step_plan/layout.h"

#include <algorithm>
#include <compare>
#include <map>
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

// What all parameters of a bucket have in common.
struct BucketKind {
  bool resident = false;
  bool frozen = false;
  commsched_dtype_t dtype = COMMSCHED_F32;

  auto operator<=>(const BucketKind&) const = default;
};

BucketKind KindOf(const Parameter& parameter, const LayoutOptions& options) {
  return {.resident = parameter.count * sizeof(float) < options.persist_bytes,
          .frozen = parameter.frozen,
          .dtype = parameter.has_dtype ? parameter.dtype : options.dtype};
}

uint64_t BlocksOf(uint64_t count) {
  return (count + kBlockElements - 1) / kBlockElements;
}

// Extent of a bucket's elements.
struct Extent {
  uint64_t end = 0;    // Of the last parameter.
  uint64_t count = 0;  // With padding.
};

// Where the parameters of a bucket lie, one after the other.
class Placer {
 public:
  Placer(const std::vector<Parameter>& parameters, const LayoutOptions& options)
      : parameters_(parameters), options_(options) {}

  // Whether the end of a shard could cut it.
  bool IsAtomic(uint32_t id) const {
    return options_.sharded && options_.num_shards > 1 &&
           (options_.whole_tensors || parameters_[id].atomic) &&
           parameters_[id].count > 0;
  }

  // None of which is atomic, behind others up to `end`. A bucket has memory,
  // also if none of its parameters has elements.
  Extent After(uint64_t end, uint32_t id) const {
    end = RoundUp(end, kBlockElements) + parameters_[id].count;
    return {end, RoundUp(std::max(end, uint64_t{1}),
                         options_.num_shards * kBlockElements)};
  }

  // Some of which may be atomic. Offsets, by place in `ids`.
  Extent Place(const std::vector<uint32_t>& ids,
               std::vector<uint64_t>* out_offsets) const {
    const auto atomic = [this](uint32_t id) { return IsAtomic(id); };
    if (std::none_of(ids.begin(), ids.end(), atomic)) {
      Extent extent;
      out_offsets->clear();
      for (uint32_t id : ids) {
        out_offsets->push_back(RoundUp(extent.end, kBlockElements));
        extent = After(extent.end, id);
      }
      return extent;
    }
    const uint64_t shard = LeastShard(ids);
    const uint64_t end = PlaceInShards(ids, shard, out_offsets);
    return {end, shard * options_.num_shards};
  }

 private:
  // Larger shards do as well, as in them each parameter ends in the same one or
  // an earlier one, and in one of all parameters nothing is cut.
  uint64_t LeastShard(const std::vector<uint32_t>& ids) const {
    uint64_t least = 1;
    uint64_t most = 0;
    for (uint32_t id : ids) {
      most += BlocksOf(parameters_[id].count);
      if (IsAtomic(id)) {
        least = std::max(least, BlocksOf(parameters_[id].count));
      }
    }
    std::vector<uint64_t> offsets;
    while (least < most) {
      const uint64_t blocks = (least + most) / 2;
      const uint64_t shard = blocks * kBlockElements;
      if (PlaceInShards(ids, shard, &offsets) <= shard * options_.num_shards) {
        most = blocks;
      } else {
        least = blocks + 1;
      }
    }
    return least * kBlockElements;
  }

  // Returns where the last one ends.
  uint64_t PlaceInShards(const std::vector<uint32_t>& ids, uint64_t shard,
                         std::vector<uint64_t>* out_offsets) const {
    uint64_t end = 0;
    out_offsets->clear();
    for (uint32_t id : ids) {
      uint64_t offset = RoundUp(end, kBlockElements);
      if (IsAtomic(id) && offset % shard + parameters_[id].count > shard) {
        offset = RoundUp(offset, shard);
      }
      out_offsets->push_back(offset);
      end = offset + parameters_[id].count;
    }
    return end;
  }

  const std::vector<Parameter>& parameters_;
  const LayoutOptions& options_;
};

// The bucket that the next parameter of its kind may join.
struct OpenBucket {
  static constexpr size_t kNone = ~size_t{0};
  size_t bucket = kNone;
  bool atomic = false;  // One of its parameters is.
  Extent extent;
};

// Whether the parameter finds room in the bucket, of which `limit` elements are
// to be taken.
bool Join(const Placer& placer, uint32_t id, uint64_t limit,
          const Layout& layout, OpenBucket* into) {
  OpenBucket joined = *into;
  joined.atomic = into->atomic || placer.IsAtomic(id);
  if (joined.atomic) {
    std::vector<uint32_t> ids = layout.buckets[into->bucket].parameters;
    ids.push_back(id);
    std::vector<uint64_t> offsets;
    joined.extent = placer.Place(ids, &offsets);
  } else {
    joined.extent = placer.After(into->extent.end, id);
  }
  const bool grows = !joined.atomic || joined.extent.count > into->extent.count;
  if (grows && joined.extent.end > limit) return false;
  *into = joined;
  return true;
}

}  // namespace

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
  const Placer placer(parameters, options);
  std::vector<uint64_t> offsets;
  std::map<BucketKind, OpenBucket> open;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t id = order[i];
    const Parameter& parameter = parameters[id];
    const BucketKind kind = KindOf(parameter, options);
    if (i == last_bucket) open.clear();
    OpenBucket& into = open[kind];
    const bool edge = into.bucket == 0 || i >= last_bucket;
    if (into.bucket == OpenBucket::kNone ||
        !Join(placer, id, edge ? edge_limit : limit, layout, &into)) {
      into = {layout.buckets.size(), placer.IsAtomic(id), placer.After(0, id)};
      if (into.atomic) into.extent = placer.Place({id}, &offsets);
      layout.buckets.emplace_back();
      layout.buckets.back().resident = kind.resident;
      layout.buckets.back().frozen = kind.frozen;
      layout.buckets.back().dtype = kind.dtype;
    }
    layout.buckets[into.bucket].parameters.push_back(id);
    layout.num_elements += parameter.count;
  }
  for (uint32_t b = 0; b < layout.buckets.size(); ++b) {
    Bucket& bucket = layout.buckets[b];
    bucket.count = placer.Place(bucket.parameters, &offsets).count;
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      layout.slots[bucket.parameters[i]] = {b, offsets[i]};
    }
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

#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_LAYOUT_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "engine/model/model.h"

namespace commsched::engine {

// Parameters start at, and shards are, multiples of this many elements, so
// that no block of a norm is cut by the end of a shard or spans two parameters.
inline constexpr uint64_t kBlockElements = 256;

// Where a parameter lies.
struct Slot {
  uint32_t bucket = 0;
  uint64_t offset = 0;  // Elements from the start of the bucket.
};

struct Bucket {
  uint64_t count = 0;                // Elements with padding.
  std::vector<uint32_t> parameters;  // Ids, by offset.
  bool resident = false;             // Of parameters below persist_bytes.
  commsched_dtype_t dtype = COMMSCHED_F32;  // Of all its parameters.
  bool frozen = false;  // None of them is trained; else all are.
  // Its gradients are reduced in every micro-batch and added up afterwards,
  // instead of before: ChooseAccumulation(). Only if there are several.
  bool reduced_at_once = false;
  // A backward of one micro-batch comes between those of another: where each
  // has gradients of its own, several are there at once.
  bool interleaved = false;
};

// The parameters in buckets: bucket-major, in the order of first use, so that
// the bucket which the next forward needs first is one collective of its own
// that can be stepped and gathered first.
struct Layout {
  std::vector<Bucket> buckets;
  std::vector<Slot> slots;                            // By parameter id.
  std::vector<std::vector<uint32_t>> module_buckets;  // By module; sorted.
  uint64_t num_elements = 0;                          // Without padding.

  // Offloaded state: in memory it has so many slots of so many values, each for
  // one bucket at a time (StepPlan::LayOut()).
  uint32_t staging_slots = 0;
  uint64_t staging_count = 0;
  // The same of offloaded gradients, in elements of what travels, of which a
  // sum may take two for each of its own.
  uint32_t gradient_slots = 0;
  uint64_t gradient_slot_count = 0;

  // Those in which `parameters` lie, each once.
  std::vector<uint32_t> BucketsOf(
      const std::vector<uint32_t>& parameters) const;
};

struct LayoutOptions {
  uint64_t bucket_bytes = 0;
  uint64_t num_shards = 1;
  // Unless 0, the first and the last bucket are of at most so many: the first
  // is gathered before anything can run, the last is what backward makes first.
  // One parameter each, if it is larger.
  uint64_t edge_bytes = 0;
  // Parameters of fewer bytes share buckets with each other only: the resident
  // ones.
  uint64_t persist_bytes = 0;
  // No shard ends within any parameter, as if all were atomic. A bucket takes
  // `num_shards` times its largest atomic parameter at least.
  bool whole_tensors = false;
  // The type of parameters that have none of their own.
  commsched_dtype_t dtype = COMMSCHED_F32;
  // Ranks keep shards of buckets; if not, nothing is cut.
  bool sharded = true;
};

// Packs whole parameters, in order of owner and then of registration, into
// buckets of at most `bucket_bytes` of fp32; one that is larger goes alone.
// Those of a bucket are of one kind: of one dtype, and all trained or none.
//
// An atomic parameter that the end of a shard would cut begins the next shard.
// Shards of its bucket are as small as that allows: at least as large as the
// largest atomic parameter, so that a bucket may be larger than `bucket_bytes`.
// Then parameters join it, whatever its limit, until it would grow.
// Buckets are padded to `num_shards` x 256 elements. A pure function.
Layout BuildLayout(const std::vector<Module>& modules,
                   const std::vector<Parameter>& parameters,
                   const LayoutOptions& options);

// The part of one parameter that lies in one shard of its bucket.
struct Segment {
  uint32_t parameter = 0;
  uint64_t in_bucket = 0;  // Elements from the start of the bucket.
  uint64_t in_shard = 0;   // Elements from the start of the shard.
  uint64_t count = 0;
};

// The segments of shard `shard` of `num_shards` of bucket `bucket`, by offset.
std::vector<Segment> ShardSegments(const Layout& layout,
                                   const std::vector<Parameter>& parameters,
                                   uint32_t bucket, uint64_t shard,
                                   uint64_t num_shards);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_LAYOUT_H_

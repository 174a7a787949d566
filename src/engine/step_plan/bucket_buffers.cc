#include "engine/step_plan/bucket_buffers.h"

namespace commsched::engine {

std::vector<BucketBuffer> BuffersOfBucket(const StepSpec& spec,
                                          const Bucket& bucket) {
  const Precision& precision = spec.precision;
  const uint64_t all = bucket.count;
  const uint64_t shard = all / spec.num_shards();
  std::vector<BucketBuffer> rows;
  const auto add = [&](BufferKind kind, const char* name,
                       commsched_dtype_t dtype, uint64_t count,
                       commsched_ownership_t ownership = COMMSCHED_BOUND,
                       bool by_micro_batch = false) {
    rows.push_back({kind, name, dtype, count, ownership, by_micro_batch});
  };
  const bool gathers = spec.gathers(bucket);
  add(BufferKind::kParameters, gathers ? "parameter_shard" : "parameters",
      bucket.dtype, gathers ? shard : all);
  if (bucket.frozen) return rows;
  if (spec.has_masters(bucket) && !spec.offloads) {
    add(BufferKind::kMasters, "masters", COMMSCHED_F32, shard);
  }
  add(BufferKind::kGradients, "gradients", bucket.dtype, all,
      spec.gradients_in_arena(bucket) ? COMMSCHED_OWNED : COMMSCHED_BOUND,
      spec.short_lived_gradients(bucket));
  if (spec.folds(bucket)) {
    add(BufferKind::kAccumulated, "accumulated", kSumDType, all,
        COMMSCHED_OWNED);
  }
  if (spec.casts(bucket)) {
    add(BufferKind::kSent, "sent", precision.reduced, all, COMMSCHED_OWNED,
        bucket.reduced_at_once);
  }
  if (spec.has_shard(bucket)) {
    add(BufferKind::kShard, "gradient_shard", spec.reduced(bucket), shard);
  }
  if (spec.has_summand(bucket)) {
    const bool short_lived = spec.offloads_gradients_of(bucket);
    add(BufferKind::kSummand, "gradient_summand", precision.reduced, shard,
        short_lived ? COMMSCHED_OWNED : COMMSCHED_BOUND, short_lived);
  }
  if (spec.moments > 0 && !spec.offloads) {
    add(BufferKind::kState, spec.optimizer_state, COMMSCHED_F32,
        spec.moments * shard);
  }
  return rows;
}

const BucketBuffer* FindBuffer(const std::vector<BucketBuffer>& buffers,
                               BufferKind kind) {
  for (const BucketBuffer& each : buffers) {
    if (each.kind == kind) return &each;
  }
  return nullptr;
}

uint64_t BoundBytes(const std::vector<BucketBuffer>& buffers) {
  uint64_t bytes = 0;
  for (const BucketBuffer& each : buffers) {
    if (each.ownership == COMMSCHED_BOUND) bytes += each.bytes();
  }
  return bytes;
}

uint64_t DueBytes(const StepSpec& spec,
                  const std::vector<BucketBuffer>& buffers) {
  const BufferKind gradients =
      spec.owned_gradients() ? BufferKind::kShard : BufferKind::kGradients;
  uint64_t bytes = 0;
  for (const BufferKind kind : {BufferKind::kParameters, BufferKind::kMasters,
                                gradients, BufferKind::kState}) {
    const BucketBuffer* const buffer = FindBuffer(buffers, kind);
    if (buffer != nullptr) bytes += buffer->bytes();
  }
  return bytes;
}

uint64_t ArenaBytes(const std::vector<BucketBuffer>& buffers) {
  uint64_t bytes = 0;
  for (const BucketBuffer& each : buffers) {
    if (each.ownership == COMMSCHED_OWNED) bytes += each.bytes();
  }
  return bytes;
}

}  // namespace commsched::engine

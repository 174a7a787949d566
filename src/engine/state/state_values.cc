#include "engine/state/state_values.h"

#include <algorithm>
#include <cstddef>

namespace commsched::engine {

Status StateValues::Store(uint32_t bucket, uint64_t begin, const float* values,
                          uint64_t count) {
  const BucketMemory& memory = state_.bucket(bucket);
  const commsched_dtype_t dtype = BucketOf(bucket).dtype;
  const bool gathered = spec_.gathers(BucketOf(bucket));
  const uint64_t shard = BucketOf(bucket).count / spec_.num_shards();
  const uint64_t shard_begin = spec_.zero_stage == 0 ? 0 : rank_ * shard;
  const uint64_t first = std::max(begin, shard_begin);
  const uint64_t last = std::min(begin + count, shard_begin + shard);
  const bool mine = first < last;
  if (mine && (spec_.has_masters(BucketOf(bucket)) ||
               (gathered && dtype == COMMSCHED_F32))) {
    ENGINE_RETURN_IF_ERROR(StoreMasters(
        bucket, first - shard_begin, values + (first - begin), last - first));
  }
  if (!gathered) {
    return state_.WriteValues(memory.all_parameters + begin * SizeOf(dtype),
                              dtype, values, count);
  }
  if (!mine || memory.my_copy == nullptr) return Status();
  return state_.WriteValues(
      memory.my_copy + (first - shard_begin) * SizeOf(dtype), dtype,
      values + (first - begin), last - first);
}

Status StateValues::StoreMasters(uint32_t bucket, uint64_t in_shard,
                                 const float* values, uint64_t count) {
  if (spec_.has_masters(BucketOf(bucket)) && offload_ != nullptr) {
    return offload_->Write(bucket, in_shard, values, count);
  }
  // Gathers of the next step are on other streams.
  ENGINE_RETURN_IF_ERROR(
      kernels_.Copy(state_.bucket(bucket).my_masters + in_shard, values,
                    count * sizeof(float)));
  return kernels_.Synchronize();
}

Status StateValues::ReadMasters(uint32_t bucket, uint64_t at, float* out,
                                uint64_t count) {
  if (spec_.has_masters(BucketOf(bucket)) && offload_ != nullptr) {
    return offload_->Read(bucket, at, out, count);
  }
  const BucketMemory& memory = state_.bucket(bucket);
  const commsched_dtype_t dtype = BucketOf(bucket).dtype;
  if (BucketOf(bucket).frozen && dtype != COMMSCHED_F32) {
    return state_.ReadValues(memory.my_copy + at * SizeOf(dtype), dtype, out,
                             count);
  }
  return kernels_.Copy(out, memory.my_masters + at, count * sizeof(float));
}

Status StateValues::ReadMoment(uint32_t bucket, uint64_t moment, uint64_t at,
                               float* out, uint64_t count) {
  const uint64_t first = spec_.moment_begin(BucketOf(bucket), moment) + at;
  if (offload_ != nullptr) return offload_->Read(bucket, first, out, count);
  return kernels_.Copy(out, state_.bucket(bucket).my_state + first,
                       count * sizeof(float));
}

Status StateValues::WriteMoment(uint32_t bucket, uint64_t moment, uint64_t at,
                                const float* values, uint64_t count) {
  const uint64_t first = spec_.moment_begin(BucketOf(bucket), moment) + at;
  if (offload_ != nullptr) return offload_->Write(bucket, first, values, count);
  return kernels_.Copy(state_.bucket(bucket).my_state + first, values,
                       count * sizeof(float));
}

}  // namespace commsched::engine

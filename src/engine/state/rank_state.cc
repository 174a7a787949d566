#include "engine/state/rank_state.h"

#include <algorithm>
#include <cstring>

namespace commsched::engine {
namespace {

// Floats that go to the host at a time.
constexpr uint64_t kStagingElements = uint64_t{1} << 18;

// Lengths of the norm's arrays, in doubles.
struct NormCounts {
  uint64_t local = 0;
  uint64_t all = 0;
  uint64_t total = 0;

  uint64_t sum() const { return local + all + total; }
};

NormCounts CountsOfNorm(const StepSpec& spec, const Layout& layout) {
  NormCounts counts;
  if (!spec.needs_norm()) return counts;
  for (const Bucket& bucket : layout.buckets) {
    if (bucket.frozen) continue;
    counts.local += bucket.count / spec.num_shards() / kBlockElements;
  }
  if (spec.gathers_block_sums()) {
    counts.local += spec.agreed_values();
    counts.all = counts.local * spec.num_shards();
  }
  if (spec.reduces_norm()) {
    counts.total = 1 + spec.agreed_values() * spec.num_shards();
  }
  return counts;
}

}  // namespace

Status RankState::CheckFits(const StepSpec& spec, const Layout& layout,
                            uint64_t arena_bytes, uint64_t ranks_here) {
  uint64_t bytes = arena_bytes +
                   layout.staging_slots * layout.staging_count * sizeof(float) +
                   layout.gradient_slots * layout.gradient_slot_count *
                       SizeOf(spec.precision.reduced);
  bytes += CountsOfNorm(spec, layout).sum() * sizeof(double);
  for (const Bucket& bucket : layout.buckets) {
    bytes += BoundBytes(BuffersOfBucket(spec, bucket));
  }
  if (bytes <= PhysicalBytes() / ranks_here) return Status();
  std::string message =
      "engine: parameters, gradients and optimizer state take " +
      std::to_string(bytes) + " bytes";
  if (ranks_here > 1) {
    message += " on each of the " + std::to_string(ranks_here) +
               " ranks, which share this machine";
  }
  return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                message + "; the machine has " +
                    std::to_string(PhysicalBytes()) + " bytes of memory");
}

RankState::~RankState() { ReleaseKept(); }

void RankState::ReleaseKept() {
  kept_.clear();
  if (kept_on_host_ == nullptr) return;
  memory_.ReleaseHost(kept_on_host_, kept_on_host_bytes_);
  kept_on_host_ = nullptr;
}

template <typename T>
Status RankState::AllocateZeros(const std::string& what, uint64_t count,
                                Array<T>* out) {
  return Array<T>::Create(memory_, kernels_, what, count, out);
}

Status RankState::Allocate(const StepPlan& plan,
                           const std::vector<Parameter>& parameters) {
  const StepSpec& spec = plan.spec();
  ReleaseKept();  // Of an attempt that failed.
  buckets_.resize(plan.layout().buckets.size());
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    ENGINE_RETURN_IF_ERROR(AllocateBucket(plan, b));
    buckets_[b].segments =
        ShardSegments(plan.layout(), parameters, b,
                      spec.zero_stage == 0 ? 0 : rank_, spec.num_shards());
  }
  if (on_device_) {
    ENGINE_RETURN_IF_ERROR(
        AllocateZeros("staging", kStagingElements, &staging_));
  }
  ENGINE_RETURN_IF_ERROR(AllocateZeros("the loss scale", 1, &control_));
  if (spec.needs_norm()) {
    ENGINE_RETURN_IF_ERROR(AllocateNorm(plan, parameters.size()));
  }
  if (spec.uneven_evaluations) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros("flags", 1, &norm_.more));
  }
  if (spec.has_flags()) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros(
        "flags", spec.num_flags(parameters.size()), &norm_.flags));
  }
  if (spec.gathers_part_rates()) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros(
        "learning rates",
        spec.agreed_values() * static_cast<uint64_t>(spec.norm_members),
        &norm_.part_rates));
  }
  if (!spec.gathers_rates()) return Status();
  return AllocateZeros("learning rates",
                       spec.agreed_values() * static_cast<uint64_t>(spec.world),
                       &norm_.rates);
}

Status RankState::AllocateBucket(const StepPlan& plan, uint32_t bucket) {
  for (const BucketBuffer& row : plan.BuffersOf(bucket)) {
    Bytes& memory = buckets_[bucket].of(row.kind);
    if (row.ownership != COMMSCHED_BOUND || memory.data() != nullptr) continue;
    ENGINE_RETURN_IF_ERROR(AllocateZeros("bucket " + std::to_string(bucket),
                                         row.bytes(), &memory));
  }
  return Status();
}

Status RankState::AllocateMissing(const StepPlan& plan) {
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    ENGINE_RETURN_IF_ERROR(AllocateBucket(plan, b));
  }
  return Status();
}

void RankState::ReleaseUnused(const StepPlan& plan) {
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<BucketBuffer> rows = plan.BuffersOf(b);
    for (const BufferKind kind :
         {BufferKind::kGradients, BufferKind::kShard, BufferKind::kSummand}) {
      const BucketBuffer* const row = FindBuffer(rows, kind);
      if (row != nullptr && row->ownership == COMMSCHED_BOUND) continue;
      buckets_[b].of(kind) = Bytes();
    }
  }
}

Status RankState::AllocateNorm(const StepPlan& plan, uint64_t num_parameters) {
  const StepSpec& spec = plan.spec();
  const NormCounts counts = CountsOfNorm(spec, plan.layout());
  ENGINE_RETURN_IF_ERROR(
      AllocateZeros("norms", counts.local, &norm_.local_sums));
  if (spec.gathers_parts()) {
    ENGINE_RETURN_IF_ERROR(
        AllocateZeros("norms", spec.part_count(), &norm_.part));
    ENGINE_RETURN_IF_ERROR(AllocateZeros(
        "norms", spec.part_count() * static_cast<uint64_t>(spec.norm_members),
        &norm_.parts));
  }
  if (spec.reduces_norm()) {
    return AllocateZeros("norms", counts.total, &norm_.total);
  }
  ENGINE_RETURN_IF_ERROR(
      AllocateZeros("norms", num_parameters, &norm_.part_sums));
  if (!spec.gathers_block_sums()) return Status();
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.all, &norm_.all_sums));
  return AllocateZeros("learning rates",
                       spec.agreed_values() * spec.num_shards(),
                       &norm_.sent_rates);
}

void RankState::Bind(const StepPlan& plan) {
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    BindBucket(plan.spec(), plan.layout().buckets[b], &buckets_[b]);
  }
}

void RankState::BindBucket(const StepSpec& spec, const Bucket& bucket,
                           BucketMemory* out) const {
  const uint64_t element = SizeOf(bucket.dtype);
  const uint64_t shard_begin =
      spec.zero_stage == 0 ? 0 : rank_ * (bucket.count / spec.num_shards());
  out->my_state = out->floats(BufferKind::kState);
  std::byte* mine = out->of(BufferKind::kParameters).data();
  if (!spec.gathers(bucket)) {
    out->all_parameters = mine;
    mine += shard_begin * element;
  }
  if (bucket.dtype == COMMSCHED_F32) {
    out->my_masters = reinterpret_cast<float*>(mine);
  } else {
    out->my_masters = out->floats(BufferKind::kMasters);
    out->my_copy = mine;
  }
  out->all_gradients = nullptr;
  if (!spec.gradients_in_arena(bucket) && !bucket.frozen) {
    out->all_gradients = out->of(BufferKind::kGradients).data();
    out->my_gradients = out->all_gradients + shard_begin * element;
  }
  out->my_summand = out->my_gradients;
  const std::byte* const summand = out->of(BufferKind::kSummand).data();
  if (summand != nullptr) out->my_summand = summand;
  std::byte* const shard = out->of(BufferKind::kShard).data();
  if (shard != nullptr) out->my_gradients = shard;
}

void RankState::HideBuckets(const StepPlan& plan, uint32_t module) {
  for (uint32_t b : plan.layout().module_buckets[module]) {
    if (plan.gathers(b)) buckets_[b].all_parameters = nullptr;
    if (plan.short_lived_gradients(b)) buckets_[b].all_gradients = nullptr;
  }
}

std::vector<commsched_binding_t> RankState::Bindings(
    const StepPlan& plan) const {
  std::vector<commsched_binding_t> bindings;
  const auto add = [&](commsched_buffer_id_t buffer, const auto& memory) {
    if (buffer == kNoId || memory.data() == nullptr) return;
    commsched_binding_t binding = {};
    binding.buffer = buffer;
    binding.address = memory.data();
    binding.bytes = memory.bytes();
    bindings.push_back(binding);
  };
  const StepGraph& graph = plan.graph();
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    for (const BucketBuffer& row : plan.BuffersOf(b)) {
      add(graph.buckets[b].of(row.kind), buckets_[b].of(row.kind));
    }
  }
  add(graph.local_sums, norm_.local_sums);
  add(graph.all_sums, norm_.all_sums);
  add(graph.total, norm_.total);
  add(graph.part, norm_.part);
  add(graph.parts, norm_.parts);
  add(graph.rates, norm_.rates);
  add(graph.part_rates, norm_.part_rates);
  add(graph.flags, norm_.flags);
  add(graph.control, control_);
  return bindings;
}

Status RankState::SetControl(const commsched_step_state_t& state) {
  return kernels_.Copy(control_.data(), &state, sizeof(state));
}

// A device converts what has been copied there.
Status RankState::KeepHost(uint64_t count, double** out) {
  const uint64_t bytes = count * sizeof(double);
  void* kept = nullptr;
  ENGINE_RETURN_IF_ERROR(memory_.AllocateHost(bytes, &kept));
  std::memset(kept, 0, bytes);
  kept_on_host_ = static_cast<double*>(kept);
  kept_on_host_bytes_ = bytes;
  *out = kept_on_host_;
  return Status();
}

Status RankState::WriteValues(std::byte* into, commsched_dtype_t dtype,
                              const float* values, uint64_t count) {
  if (!on_device_) {
    return kernels_.Convert(into, dtype, values, COMMSCHED_F32, count);
  }
  for (uint64_t begin = 0; begin < count; begin += staging_.count()) {
    const uint64_t now = std::min(staging_.count(), count - begin);
    ENGINE_RETURN_IF_ERROR(
        kernels_.Copy(staging_.data(), values + begin, now * sizeof(float)));
    ENGINE_RETURN_IF_ERROR(kernels_.Convert(into + begin * SizeOf(dtype), dtype,
                                            staging_.data(), COMMSCHED_F32,
                                            now));
  }
  return kernels_.Synchronize();
}

Status RankState::ReadValues(const std::byte* from, commsched_dtype_t dtype,
                             float* out_values, uint64_t count) {
  if (!on_device_) {
    return kernels_.Convert(out_values, COMMSCHED_F32, from, dtype, count);
  }
  for (uint64_t begin = 0; begin < count; begin += staging_.count()) {
    const uint64_t now = std::min(staging_.count(), count - begin);
    ENGINE_RETURN_IF_ERROR(kernels_.Convert(staging_.data(), COMMSCHED_F32,
                                            from + begin * SizeOf(dtype), dtype,
                                            now));
    ENGINE_RETURN_IF_ERROR(kernels_.Copy(out_values + begin, staging_.data(),
                                         now * sizeof(float)));
  }
  return kernels_.Synchronize();
}

Status RankState::OnHost(const void* bytes, uint64_t count,
                         std::vector<std::byte>* scratch,
                         const void** out_bytes) const {
  *out_bytes = bytes;
  if (!on_device_) return Status();
  scratch->resize(count);
  *out_bytes = scratch->data();
  ENGINE_RETURN_IF_ERROR(kernels_.Copy(scratch->data(), bytes, count));
  return kernels_.Synchronize();
}

}  // namespace commsched::engine

// What each rank does alone before the first step: layout, plan, memory.

#include <algorithm>
#include <utility>

#include "engine.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {
namespace {

// Of float to the host, at a time.
constexpr uint64_t kStagingElements = uint64_t{1} << 18;

}  // namespace

template <typename T>
Status Engine::AllocateZeros(const std::string& what, uint64_t count,
                             Array<T>* out) {
  return Array<T>::Create(allocator_, kernels_, what, count, out);
}

Status Engine::Prepare() {
  if (phase_ == Phase::kPrepared) return OutOfOrder("prepare");
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  if (model_.parameters().empty()) {
    return FailedPrecondition("engine: no parameters were added before build");
  }
  if (recording_) ENGINE_RETURN_IF_ERROR(CheckCanRecord());
  const StepPlan::Options options = PlanOptions();
  Layout layout;
  ENGINE_RETURN_IF_ERROR(StepPlan::LayOut(spec_, model_, options, &layout));
  ENGINE_RETURN_IF_ERROR(CheckMemory(layout, /*arena=*/0));
  ENGINE_RETURN_IF_ERROR(StepPlan::Build(
      spec_, model_, options, layout,
      RegisteredSequence(model_.modules().size()), &step_plan_));
  ENGINE_RETURN_IF_ERROR(CheckMemory(layout, step_plan_->arena_bytes()));
  ENGINE_RETURN_IF_ERROR(Allocate());
  phase_ = Phase::kPrepared;
  return Status();
}

StepPlan::Options Engine::PlanOptions() const {
  return {.layout = {.bucket_bytes = desc_.bucket_bytes,
                     .num_shards = static_cast<uint64_t>(spec_.world),
                     .edge_bytes = desc_.edge_bucket_bytes,
                     .persist_bytes = desc_.persist_below},
          .accumulate_bytes = desc_.accumulate_bytes,
          .offload_staging_bytes = desc_.offload_staging_bytes,
          .max_live_bytes = desc_.max_live_bytes,
          .prefetch_bytes = desc_.prefetch_bytes,
          .plan = plan_options_,
          .profile = profile_};
}

Engine::NormCounts Engine::CountsOfNorm(const Layout& layout) const {
  NormCounts counts;
  if (!spec_.needs_norm()) return counts;
  for (const Bucket& bucket : layout.buckets) {
    counts.local += bucket.count / spec_.num_shards() / kBlockElements;
  }
  if (spec_.gathers_block_sums()) {
    ++counts.local;
    counts.all = counts.local * spec_.num_shards();
  }
  if (spec_.reduces_norm()) counts.total = 1 + spec_.num_shards();
  return counts;
}

// More than the machine has is refused rather than left to overcommit: the
// first touch of such memory would kill the process. Each rank on this host has
// an engine that takes about as much, also where other groups share the model
// among themselves.
Status Engine::CheckMemory(const Layout& layout, uint64_t arena) const {
  uint64_t bytes =
      arena + layout.staging_slots * layout.staging_count * sizeof(float);
  bytes += CountsOfNorm(layout).sum() * sizeof(double);
  for (const Bucket& bucket : layout.buckets) {
    bytes += BoundBytes(BuffersOfBucket(spec_, bucket));
  }
  const auto ranks =
      static_cast<uint64_t>(commsched_context_local_size(desc_.context));
  if (bytes <= PhysicalBytes() / ranks) return Status();
  std::string message =
      "engine: parameters, gradients and optimizer state take " +
      std::to_string(bytes) + " bytes";
  if (ranks > 1) {
    message += " on each of the " + std::to_string(ranks) +
               " ranks, which share this machine";
  }
  return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                message + "; the machine has " +
                    std::to_string(PhysicalBytes()) + " bytes of memory");
}

Status Engine::Allocate() {
  memory_.resize(layout().buckets.size());
  for (uint32_t b = 0; b < memory_.size(); ++b) {
    BucketMemory& memory = memory_[b];
    const std::string what = "bucket " + std::to_string(b);
    for (const BucketBuffer& row : BuffersOf(b)) {
      if (row.ownership != COMMSCHED_BOUND) continue;
      ENGINE_RETURN_IF_ERROR(
          AllocateZeros(what, row.bytes(), &memory.of(row.kind)));
    }
    memory.segments = ShardSegments(layout(), model_.parameters(), b,
                                    spec_.zero_stage == 0 ? 0 : group_rank_,
                                    spec_.num_shards());
  }
  if (desc_.measure_steps > 0) {
    op_cost_ns_.assign(step_plan_->num_ops(),
                       std::numeric_limits<int64_t>::max());
  }
  if (on_device_) {
    ENGINE_RETURN_IF_ERROR(
        AllocateZeros("staging", kStagingElements, &staging_));
  }
  ENGINE_RETURN_IF_ERROR(AllocateZeros("the loss scale", 1, &state_));
  if (spec_.scales_loss) last_state_.scale = desc_.loss_scale;
  ENGINE_RETURN_IF_ERROR(SetState());
  if (spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(AllocateNorm());
  if (spec_.needs_norm() || spec_.gathers_rates()) {
    ENGINE_RETURN_IF_ERROR(reports_.Init(allocator_, kernels_,
                                         static_cast<uint64_t>(spec_.world)));
  }
  if (spec_.gathers_rates()) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros(
        "learning rates", static_cast<uint64_t>(spec_.world), &rates_));
  }
  ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
  if (!spec_.offloads) return Status();
  return Offload::Create({.context = desc_.context,
                          .pool = pool_,
                          .rank = group_rank_,
                          .step = spec_,
                          .memory = &allocator_,
                          .kernels = &kernels_},
                         layout(), &offload_);
}

Status Engine::SetState() {
  const commsched_step_state_t& state = last_state_;
  return kernels_.Copy(state_.data(), &state, sizeof(state));
}

Status Engine::AllocateNorm() {
  const NormCounts counts = CountsOfNorm(layout());
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.local, &local_sums_));
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.total, &total_));
    return norm_sums_.Init(allocator_, kernels_, {{{0, graph().local_blocks}}});
  }
  std::vector<std::vector<commsched_run_t>> parts;
  for (uint32_t p = 0; p < model_.parameters().size(); ++p) {
    parts.push_back(BlocksOf(p));
  }
  ENGINE_RETURN_IF_ERROR(norm_sums_.Init(allocator_, kernels_, parts));
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", parts.size(), &part_sums_));
  if (!spec_.gathers_block_sums()) return Status();
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", counts.all, &all_sums_));
  std::vector<std::vector<commsched_run_t>> rates;
  for (uint64_t rank = 0; rank < spec_.num_shards(); ++rank) {
    rates.push_back({{rank * graph().local_count + graph().local_blocks, 1}});
  }
  ENGINE_RETURN_IF_ERROR(rates_in_sums_.Init(allocator_, kernels_, rates));
  return AllocateZeros("learning rates", rates.size(), &sent_rates_);
}

}  // namespace commsched::engine

// What an engine tells of itself.

#include <string>

#include "engine.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/update/loss_scale.h"

namespace commsched::engine {

Status Engine::GetInfo(commsched_engine_info_t* out_info) const {
  commsched_engine_info_t info = commsched_engine_info_init();
  info.num_parameters = layout().num_elements;
  info.num_buckets = layout().buckets.size();
  info.arena_bytes = role_.plan->arena_bytes();
  if (spec_.zero_stage != 3) info.gradient_bytes = role_.plan->arena_bytes();
  info.num_ops = role_.plan->num_ops();
  for (const BucketMemory& memory : state_.buckets()) {
    info.parameter_bytes += memory.of(BufferKind::kParameters).bytes();
    for (const BufferKind kind :
         {BufferKind::kGradients, BufferKind::kShard, BufferKind::kSummand}) {
      info.gradient_bytes += memory.of(kind).bytes();
    }
    for (const BufferKind kind : {BufferKind::kState, BufferKind::kMasters}) {
      info.optimizer_bytes += memory.of(kind).bytes();
    }
  }
  if (offload_ != nullptr) {
    info.offloaded_bytes = offload_->bytes();
    info.staging_bytes = offload_->staging_bytes();
    info.optimizer_bytes += info.staging_bytes;
    info.offloaded_gradient_bytes = offload_->gradient_bytes();
    info.gradient_staging_bytes = offload_->gradient_staging_bytes();
    info.gradient_bytes += info.gradient_staging_bytes;
    info.copied_bytes = offload_->copied_bytes();
    info.copy_ns = offload_->copy_ns();
    info.copy_exposed_ns = offload_->exposed_ns();
  }
  info.state_bytes =
      info.parameter_bytes + info.gradient_bytes + info.optimizer_bytes;
  if (spec_.zero_stage == 3) info.state_bytes += info.arena_bytes;
  info.norm_bytes = state_.norm().bytes();
  info.state_bytes += info.norm_bytes;
  const LossScale& control = update_.reported();
  info.skipped_steps = static_cast<uint64_t>(control.skipped_steps);
  info.skipped_in_row = static_cast<uint64_t>(control.skipped_in_row);
  info.accumulated_bytes = AccumulatedBytes(spec_, layout());
  for (uint32_t bucket = 0; bucket < info.num_buckets; ++bucket) {
    info.due_bytes += DueBytes(spec_, role_.plan->BuffersOf(bucket));
  }
  info.given_buckets = role_.buckets.given_buckets;
  info.given_step_ns = role_.buckets.given_step_ns;
  info.step_ns = role_.buckets.step_ns;
  *out_info = info;
  return Status();
}

}  // namespace commsched::engine

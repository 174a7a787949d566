#include "engine/tables/optimizer_table.h"

namespace commsched::engine {
namespace {

float MomentumOf(const commsched_optimizer_table_t& table) {
  return table.settings[0].value;
}

bool IsNesterov(const commsched_optimizer_table_t& table) {
  return table.settings[1].value != 0;
}

commsched_status_t CheckSgd(const commsched_optimizer_table_t* self) {
  const Status momentum = CheckFraction(*self, "momentum", MomentumOf(*self));
  if (!momentum.ok()) return CodeOf(momentum);
  if (!IsNesterov(*self) || MomentumOf(*self) > 0) return COMMSCHED_OK;
  return CodeOf(InvalidArgument(
      "engine: nesterov of optimizer 'sgd' is 1, and its momentum is 0"));
}

// The kernels are on the stream already.
commsched_status_t StepSgd(const commsched_optimizer_table_t* self,
                           commsched_stream_t /*stream*/,
                           const commsched_optimizer_bucket_t* bucket) {
  commsched_sgd_args_t args = {};
  args.momentum = MomentumOf(*self);
  args.nesterov = IsNesterov(*self) ? 1 : 0;
  for (uint32_t i = 0; i < bucket->num_segments; ++i) {
    const commsched_optimizer_segment_t& segment = bucket->segments[i];
    SetSegment(*bucket, segment, &args);
    if (args.momentum > 0) args.velocity = bucket->state + segment.begin;
    const Status stepped = KernelsOf(*bucket).Sgd(args);
    if (!stepped.ok()) return CodeOf(stepped);
  }
  return COMMSCHED_OK;
}

}  // namespace
}  // namespace commsched::engine

// It keeps nothing without momentum.
commsched_optimizer_table_t commsched_sgd(float momentum, uint32_t nesterov) {
  commsched_optimizer_table_t table = commsched_optimizer_table_init();
  table.name = "sgd";
  table.state_values = momentum > 0 ? 1 : 0;
  table.state_names[0] = "sgd.momentum";
  table.element_wise = 1;
  table.settings[0] = {"momentum", momentum};
  table.settings[1] = {"nesterov", nesterov != 0 ? 1.0f : 0.0f};
  table.check = commsched::engine::CheckSgd;
  table.step = commsched::engine::StepSgd;
  return table;
}

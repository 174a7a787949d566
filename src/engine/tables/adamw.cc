#include "engine/tables/optimizer_table.h"

namespace commsched::engine {
namespace {

float EpsilonOf(const commsched_optimizer_table_t& table) {
  return table.settings[0].value;
}

commsched_status_t CheckAdamW(const commsched_optimizer_table_t* self) {
  return CodeOf(CheckNotNegative("epsilon of optimizer 'adamw'",
                                 double{EpsilonOf(*self)}));
}

// The kernels are on the stream already.
commsched_status_t StepAdamW(const commsched_optimizer_table_t* self,
                             commsched_stream_t /*stream*/,
                             const commsched_optimizer_bucket_t* bucket) {
  commsched_adamw_args_t args = {};
  args.epsilon = EpsilonOf(*self);
  for (uint32_t i = 0; i < bucket->num_segments; ++i) {
    const commsched_optimizer_segment_t& segment = bucket->segments[i];
    SetSegment(*bucket, segment, &args);
    args.beta1 = segment.beta1;
    args.beta2 = segment.beta2;
    args.m = bucket->state + segment.begin;
    args.v = args.m + bucket->shard_count;
    const Status stepped = KernelsOf(*bucket).Adamw(args);
    if (!stepped.ok()) return CodeOf(stepped);
  }
  return COMMSCHED_OK;
}

}  // namespace
}  // namespace commsched::engine

commsched_optimizer_table_t commsched_adamw(float beta1, float beta2,
                                            float epsilon) {
  commsched_optimizer_table_t table = commsched_optimizer_table_init();
  table.name = "adamw";
  table.state_values = 2;
  table.state_names[0] = "adamw.m";
  table.state_names[1] = "adamw.v";
  table.element_wise = 1;
  table.beta1 = beta1;
  table.beta2 = beta2;
  table.settings[0] = {"epsilon", epsilon};
  table.check = commsched::engine::CheckAdamW;
  table.step = commsched::engine::StepAdamW;
  return table;
}

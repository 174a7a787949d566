#include "engine/tables/optimizer_table.h"

namespace commsched::engine {
namespace {

// The kernels are on the stream already.
Status StepAdamW(const void* user, commsched_stream_t /*stream*/,
                 const OptimizerBucket& bucket) {
  const auto& settings = *static_cast<const OptimizerSettings*>(user);
  commsched_adamw_args_t args = {};
  args.beta1 = settings.beta1;
  args.beta2 = settings.beta2;
  args.epsilon = settings.epsilon;
  for (const OptimizerSegment& segment : *bucket.segments) {
    SetSegment(bucket, segment, &args);
    args.m = bucket.state + segment.begin;
    args.v = args.m + bucket.shard_count;
    ENGINE_RETURN_IF_ERROR(settings.kernels->Adamw(args));
  }
  return Status();
}

}  // namespace

OptimizerTable AdamW(const OptimizerSettings* settings) {
  return {.name = "adamw",
          .title = "AdamW",
          .state_name = "adamw_state",
          .state_values = 2,
          .names = {"adamw.m", "adamw.v"},
          .element_wise = true,
          .step = StepAdamW,
          .user = settings,
          .settings = {{{"beta1", settings->beta1},
                        {"beta2", settings->beta2},
                        {"epsilon", settings->epsilon}}}};
}

}  // namespace commsched::engine

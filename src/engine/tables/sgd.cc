#include "engine/tables/optimizer_table.h"

namespace commsched::engine {
namespace {

// The kernels are on the stream already.
Status StepSgd(const void* user, commsched_stream_t /*stream*/,
               const OptimizerBucket& bucket) {
  const auto& settings = *static_cast<const OptimizerSettings*>(user);
  commsched_sgd_args_t args = {};
  args.momentum = settings.momentum;
  args.nesterov = settings.nesterov ? 1 : 0;
  for (const OptimizerSegment& segment : *bucket.segments) {
    SetSegment(bucket, segment, &args);
    if (settings.momentum > 0) args.velocity = bucket.state + segment.begin;
    ENGINE_RETURN_IF_ERROR(settings.kernels->Sgd(args));
  }
  return Status();
}

}  // namespace

// Without momentum it keeps nothing.
OptimizerTable Sgd(const OptimizerSettings* settings) {
  return {.name = "sgd",
          .title = "SGD",
          .state_name = "sgd_state",
          .state_values = settings->momentum > 0 ? 1u : 0u,
          .names = {"sgd.momentum"},
          .element_wise = true,
          .step = StepSgd,
          .user = settings,
          .settings = {{{"momentum", settings->momentum},
                        {"nesterov", settings->nesterov ? 1.0f : 0.0f}}}};
}

}  // namespace commsched::engine

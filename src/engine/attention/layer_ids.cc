#include "engine/attention/layer_ids.h"

#include <algorithm>

namespace commsched::engine {
namespace {

commsched_parameter_id_t IdOf(const commsched_attention_layer_t& layer,
                              AttentionParameter parameter) {
  switch (parameter) {
    case AttentionParameter::kQkvWeight:
      return layer.qkv_weight;
    case AttentionParameter::kQkvBias:
      return layer.qkv_bias;
    case AttentionParameter::kOutWeight:
      return layer.out_weight;
    case AttentionParameter::kOutBias:
      return layer.out_bias;
  }
  return 0;
}

// Those of `step`, an op, and those of what the caller does in it: `extra`.
ParameterIds IdsOf(const commsched_attention_layer_t& layer,
                   const AttentionStep& step,
                   const std::vector<AttentionParameter>& parameters,
                   const commsched_parameter_id_t* extra, uint32_t num_extra) {
  ParameterIds ids;
  for (AttentionParameter each : parameters) ids.push_back(IdOf(layer, each));
  if (step.kind == AttentionStep::Kind::kQueryInput) {
    ids.insert(ids.end(), extra, extra + num_extra);
  }
  return ids;
}

}  // namespace

ParameterIds ParametersOf(const commsched_attention_layer_t& layer,
                          const AttentionStep& step) {
  return IdsOf(layer, step, step.parameters, layer.input_parameters,
               layer.num_input_parameters);
}

ParameterIds GradientsOf(const commsched_attention_layer_t& layer,
                         const AttentionStep& step) {
  return IdsOf(layer, step, step.gradients, layer.input_gradients,
               layer.num_input_gradients);
}

std::vector<ParameterIds> CompletionsOf(
    const commsched_attention_layer_t& layer,
    const std::vector<AttentionStep>& steps) {
  std::vector<ParameterIds> completes(steps.size());
  ParameterIds seen;
  for (size_t s = steps.size(); s-- > 0;) {
    for (commsched_parameter_id_t id : GradientsOf(layer, steps[s])) {
      if (std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
      seen.push_back(id);
      completes[s].push_back(id);
    }
  }
  return completes;
}

}  // namespace commsched::engine

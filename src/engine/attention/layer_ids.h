#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_LAYER_IDS_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_LAYER_IDS_H_

#include <vector>

#include "engine/attention/steps.h"

namespace commsched::engine {

using ParameterIds = std::vector<commsched_parameter_id_t>;

// The parameters whose values `step`, an op of `layer`, reads, and those whose
// gradients it adds to. Those of what the caller does in it are among them.
ParameterIds ParametersOf(const commsched_attention_layer_t& layer,
                          const AttentionStep& step);
ParameterIds GradientsOf(const commsched_attention_layer_t& layer,
                         const AttentionStep& step);

// Returns, by step, the gradients that no later step adds to: the last step
// that lists a gradient completes it.
std::vector<ParameterIds> CompletionsOf(
    const commsched_attention_layer_t& layer,
    const std::vector<AttentionStep>& steps);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_LAYER_IDS_H_

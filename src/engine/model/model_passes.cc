// The passes of a step: those that were set, or the default order.

#include "engine/model/model.h"

namespace commsched::engine {

Status Model::SetPasses(const commsched_pass_t* passes, uint64_t num_passes) {
  if (num_segments_ > 0 && num_passes > 0) {
    return FailedPrecondition(
        "engine: set_passes of a model with modules that are recomputed; "
        "RECOMPUTE is a pass of the list");
  }
  std::vector<PassCall> calls;
  for (uint64_t i = 0; i < num_passes; ++i) {
    const commsched_pass_t& pass = passes[i];
    if (pass.kind >= kNumPassKinds || pass.reserved != 0) {
      return InvalidArgument("engine: pass " + std::to_string(i) +
                             " is of kind " + std::to_string(pass.kind) +
                             ", reserved " + std::to_string(pass.reserved) +
                             "; kinds are 0 to 5, and reserved must be 0");
    }
    calls.push_back(
        {static_cast<PassKind>(pass.kind), pass.module, pass.micro_batch});
  }
  return LinkPasses(calls, ModuleNames(), &passes_);
}

Status Model::StepPasses(const Sequence& sequence, uint32_t micro_batches,
                         std::vector<Pass>* out_passes) const {
  if (passes_.empty()) {
    *out_passes = PassOrder(sequence, Segments(), micro_batches);
    return Status();
  }
  ENGINE_RETURN_IF_ERROR(CheckPasses(passes_, ModuleNames(), micro_batches));
  const std::vector<bool> without = WithoutBackward(passes_, modules_.size());
  for (size_t m = 0; m < modules_.size(); ++m) {
    if (!without[m] || modules_[m].used.empty()) continue;
    return InvalidArgument("engine: module " + std::to_string(m) + " '" +
                           modules_[m].name +
                           "' has parameters, and no backward among the "
                           "passes");
  }
  for (size_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = passes_[i];
    const Module& module = modules_[pass.module];
    if (pass.kind != PassKind::kBackwardInput || module.steps[1].empty()) {
      continue;
    }
    return Status(COMMSCHED_UNIMPLEMENTED,
                  "engine: pass " + std::to_string(i) + " is " +
                      TextOf(pass, module.name) +
                      ", whose backward has ops or collectives within: it "
                      "cannot come in halves yet");
  }
  *out_passes = passes_;
  return Status();
}

}  // namespace commsched::engine

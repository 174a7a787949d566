// The passes of a step: those that were set, or the default order.

#include <algorithm>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace commsched::engine {
namespace {

bool Writes(const ModuleStep& step, uint32_t activation) {
  if (step.is_collective) {
    return step.collective.output.buffer == activation;
  }
  return std::any_of(step.accesses.begin(), step.accesses.end(),
                     [&](const commsched_access_t& each) {
                       return each.buffer == activation &&
                              each.mode != COMMSCHED_READ;
                     });
}

struct ListOfPasses {
  const std::vector<Module>& modules;
  const std::vector<Activation>& activations;
  const std::vector<Pass>& passes;

  const std::vector<ModuleStep>& StepsOf(const Pass& pass) const {
    return modules[pass.module].steps[IsBackward(pass.kind) ? 1 : 0];
  }
};

// Whether what step `s` of the backward of pass `weight` reads in `activation`
// is overwritten between that place in the first half and the second half.
bool IsOverwritten(const ListOfPasses& list, size_t weight, size_t s,
                   uint32_t activation) {
  const Pass& pass = list.passes[weight];
  const std::vector<ModuleStep>& steps = list.StepsOf(pass);
  for (size_t later = s + 1; later < steps.size(); ++later) {
    if (RunsIn(steps[later], PassKind::kBackwardInput) &&
        Writes(steps[later], activation)) {
      return true;
    }
  }
  for (size_t i = weight; i-- > 0;) {
    const Pass& between = list.passes[i];
    if (between.kind == PassKind::kBackwardInput &&
        between.forward == pass.forward) {
      return false;
    }
    for (const ModuleStep& step : list.StepsOf(between)) {
      if (RunsIn(step, between.kind) && Writes(step, activation)) return true;
    }
  }
  return false;
}

// Its ops run when all else of the backward has, and maybe much later: without
// the values of parameters, and on activations that are as they were left.
Status CheckSecondHalf(const ListOfPasses& list, size_t weight) {
  const Pass& pass = list.passes[weight];
  const std::vector<ModuleStep>& steps = list.StepsOf(pass);
  for (size_t s = 0; s < steps.size(); ++s) {
    if (!RunsIn(steps[s], PassKind::kBackwardWeight)) continue;
    const auto refuse = [&](const std::string& why) {
      return InvalidArgument("engine: pass " + std::to_string(weight) + " is " +
                             TextOf(pass, list.modules[pass.module].name) +
                             ", whose op '" + steps[s].name + "' " + why);
    };
    if (!steps[s].parameters.empty()) {
      return refuse(
          "reads parameters, which are not there in the second half of a "
          "backward: take it apart into two ops");
    }
    for (const commsched_access_t& access : steps[s].accesses) {
      const std::string name =
          "activation '" + list.activations[access.buffer].name + "'";
      if (access.mode != COMMSCHED_READ) {
        return refuse("writes " + name +
                      ": in the second half of a backward ops write gradients "
                      "alone");
      }
      if (IsOverwritten(list, weight, s, access.buffer)) {
        return refuse("reads " + name +
                      ", which is overwritten before that pass");
      }
    }
  }
  return Status();
}

}  // namespace

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
    if (!without[m]) continue;
    const std::vector<uint32_t>& used = modules_[m].used;
    const auto trained =
        std::find_if(used.begin(), used.end(),
                     [&](uint32_t p) { return !parameters_[p].frozen; });
    if (trained == used.end()) continue;
    return InvalidArgument("engine: module " + std::to_string(m) + " '" +
                           modules_[m].name + "' has parameter '" +
                           parameters_[*trained].name +
                           "', which is trained, and no backward among the "
                           "passes");
  }
  for (size_t i = 0; i < passes_.size(); ++i) {
    if (passes_[i].kind != PassKind::kBackwardWeight) continue;
    ENGINE_RETURN_IF_ERROR(
        CheckSecondHalf({modules_, exchanges_.activations, passes_}, i));
  }
  *out_passes = passes_;
  return Status();
}

}  // namespace commsched::engine

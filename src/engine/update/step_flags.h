#ifndef COMMSCHED_SRC_ENGINE_UPDATE_STEP_FLAGS_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_STEP_FLAGS_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "engine/model/model.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/spec.h"
#include "engine/tables/kernels.h"
#include "engine/update/norm_sums.h"

namespace commsched::engine {

// What ranks tell each other at the end of a step (StepSpec::has_flags()): of
// which parameters they have no gradient, and whether one of them cancels the
// step for all. The minimum over the ranks is what holds.
//
// What the optimizer is told of each parameter follows from that in the memory
// in which the rank computes, so that no host waits for it.
//
// Thread-compatible.
class StepFlags {
 public:
  // Its memory is kept in `state`, which has that of the flags, and outlives
  // it.
  Status Init(RankState* state, const Kernels& kernels, const StepSpec& spec,
              const std::vector<Parameter>& parameters);

  // A step begins: no parameter has a gradient, and nobody cancels.
  void Begin();
  // This rank has a gradient of `parameter` in the step.
  void NoteGradient(uint32_t parameter) {
    if (!sets_.empty()) values_[parameter] = 0;
  }
  void Cancel();

  // Enqueues: writes what this rank says where the others will read it.
  Status Set(const Kernels& kernels) const;
  // Negative on every rank where one cancels, else 0. Of the ranks together,
  // once they have told each other.
  const double* cancelled() const { return flags_ + values_.size() - 1; }
  // Enqueues what Control() gives. `of_sets`: by option set, what differs there
  // from `control`; null: nothing.
  Status Decide(const Kernels& kernels, const commsched_step_control_t& control,
                const std::vector<const commsched_step_control_t*>& of_sets);
  // What `parameter` is stepped with: as its option set is, and skipped where
  // its gradient is absent on all ranks. Null: there is nothing of its own.
  const commsched_step_control_t* Control(uint32_t parameter) const {
    return controls_ == nullptr ? nullptr : controls_ + parameter;
  }

 private:
  double* flags_ = nullptr;
  std::vector<double> values_;  // Of this rank.

  // These are for absent gradients.
  std::vector<uint32_t> sets_;  // By parameter: its option set.
  NormSums sums_;
  double* sources_ = nullptr;  // The flags, and a control for each option set.
  commsched_step_control_t* controls_ = nullptr;  // By parameter.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_STEP_FLAGS_H_

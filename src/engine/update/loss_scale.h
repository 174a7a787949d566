#ifndef COMMSCHED_SRC_ENGINE_UPDATE_LOSS_SCALE_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_LOSS_SCALE_H_

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/snapshot.h"
#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "kernels/optimizer.h"

namespace commsched::engine {

// What the ops of a step hand to each other about loss scaling, in memory of
// the graph. With a scale of 1 for good where there is none.
struct LossScale : commsched_step_state_t {
  LossScale() : commsched_step_state_t{} {
    control = {1, 1, 1, 0};
    scale = 1;
  }
};

using kernels::kMaxLossScale;
using kernels::kMinLossScale;
inline constexpr uint32_t kDefaultLossScaleWindow = 2000;
inline constexpr uint32_t kDefaultMaxSkippedSteps = 50;

// What stands of it in a checkpoint: of a run with a scale all of it, of one
// without the steps that were skipped, if any. How many were skipped in a row
// is not there: a run that resumes counts these anew.
void SaveLossScale(const LossScale& from, bool scales,
                   std::map<std::string, std::string>* metadata);

// `metadata` of a checkpoint of so many steps. Leaves `*out` as it is where
// there is nothing of it, but for skipped_steps; the scale, too, if the run
// that saved had none. Without `scales` the scale stays 1. Fails with
// INVALID_ARGUMENT, and changes nothing, if it has something else.
Status LoadLossScale(const std::map<std::string, std::string>& metadata,
                     uint64_t steps, bool scales, LossScale* out);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_LOSS_SCALE_H_

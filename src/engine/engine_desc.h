#ifndef COMMSCHED_SRC_ENGINE_ENGINE_DESC_H_
#define COMMSCHED_SRC_ENGINE_ENGINE_DESC_H_

#include "checkpoint/status.h"
#include "commsched/engine.h"
#include "engine/step_plan/options.h"
#include "engine/step_plan/planned_role.h"

namespace commsched::engine {

// What an engine is created with: commsched_engine_desc_t. The structs that it
// points to are of this version.

// INVALID_ARGUMENT and UNIMPLEMENTED, with the field and its value, unless a
// rank can run it. What shapes its steps is checked by StepOptions::Check() or,
// if it was planned before, by CheckStepPlan().
Status CheckEngineDesc(const commsched_engine_desc_t& desc);

// INVALID_ARGUMENT unless `planned`, the step plan of `desc`, is what this rank
// can run, and `desc` says nothing of what the plan has decided.
Status CheckStepPlan(const commsched_engine_desc_t& desc,
                     const PlannedRole& planned);

// What shapes its steps. `plan` is the caller's, and what the result points to.
commsched_step_plan_options_t StepOptionsOf(const commsched_engine_desc_t& desc,
                                            commsched_plan_options_t* plan);

// With what 0 means put in and what `options` say, and without pointers to
// what the engine has copies of.
commsched_engine_desc_t WithDefaults(commsched_engine_desc_t desc,
                                     const StepOptions& options);

bool IsOnDevice(const commsched_engine_desc_t& desc);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ENGINE_DESC_H_

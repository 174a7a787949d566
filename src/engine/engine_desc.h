#ifndef COMMSCHED_SRC_ENGINE_ENGINE_DESC_H_
#define COMMSCHED_SRC_ENGINE_ENGINE_DESC_H_

#include "checkpoint/status.h"
#include "commsched/engine.h"
#include "engine/step_plan/options.h"

namespace commsched::engine {

// What an engine is created with: commsched_engine_desc_t. The structs that it
// points to are of this version.

// INVALID_ARGUMENT and UNIMPLEMENTED, with the field and its value, unless a
// rank can run it.
Status CheckEngineDesc(const commsched_engine_desc_t& desc);

// INVALID_ARGUMENT, with the field, its value and what was planned, unless
// `desc`, which has passed CheckEngineDesc(), fits its step plan.
Status CheckFitsStepPlan(const commsched_engine_desc_t& desc,
                         const StepOptions& planned);

// With what 0 means put in, and without pointers to what the engine has copies
// of.
commsched_engine_desc_t WithDefaults(commsched_engine_desc_t desc);

bool IsOnDevice(const commsched_engine_desc_t& desc);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ENGINE_DESC_H_

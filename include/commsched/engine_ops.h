/// Calls of ops within a module, which were added to the model (model.h).
/// Conventions and errors: engine.h.
#ifndef COMMSCHED_ENGINE_OPS_H_
#define COMMSCHED_ENGINE_OPS_H_

#include <stdint.h>

#include "commsched/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Begins `op`, which ends what ran before it in its module: waits for the
/// collectives that it depends on.
///
/// Threads:   one per engine at a time.
/// Blocks:    until these are complete.
/// Errors:    FAILED_PRECONDITION  a call out of order, as step_begin
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_op_begin(commsched_engine_t* engine,
                          commsched_module_op_id_t op, uint32_t micro_batch);

/// Ends `op`, and issues the collectives whose inputs are now complete.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as op_begin
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_op_end(commsched_engine_t* engine, commsched_module_op_id_t op,
                        uint32_t micro_batch);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_OPS_H_

/// In which order forwards run, where that is not the order of registration.
/// Conventions and errors: engine.h.
#ifndef COMMSCHED_ENGINE_ORDER_H_
#define COMMSCHED_ENGINE_ORDER_H_

#include <stdint.h>

#include "commsched/engine_types.h"
#include "commsched/export.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Takes the order of the modules from the caller: the first forward, of a step
/// or an evaluation, may begin them in any order, and any of them several
/// times. When it is over, which the first BACKWARD or evaluation_end
/// says, the ranks plan that order and meet, and all else is as if the modules
/// had been registered so. Modules that it leaves out, where that is allowed,
/// come behind the one registered before them. Buckets stay as laid out; they
/// are gathered, reduced and stepped in the order of first use.
///
/// Between steps, where the next forward may have another order than those
/// before; of the first forward `record_order` of the description says it.
/// Drains, and is collective.
///
/// Until the order is recorded, context, group and trace must live;
/// commsched_engine_session() returns NULL, and commsched_engine_plan(), like
/// what the engine says of itself, is of the order as registered or as last
/// recorded. In stages 2 and 3 a recorded order brings new addresses of
/// gradients. In stage 3 the recorded forward waits for the gathers of each
/// module, in memory for one, and the ranks must begin the same modules.
///
/// Threads:   one per engine at a time.
/// Blocks:    as commsched_engine_drain(). The call that ends the recorded
///            forward blocks as commsched_engine_create() does. It fails with
///            FAILED_PRECONDITION, naming it, if a module was left out that
///            must not be; or, finally, as creating does, also if the ranks
///            have recorded different orders.
/// Errors:    FAILED_PRECONDITION  within a step; a module has ops or
///                                 collectives within (model.h)
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_record_order(commsched_engine_t* engine);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_ORDER_H_

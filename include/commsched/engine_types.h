/// What the headers of the engine have in common. Include engine.h.
#ifndef COMMSCHED_ENGINE_TYPES_H_
#define COMMSCHED_ENGINE_TYPES_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's model: layout, graph, plan and session.
typedef struct commsched_engine commsched_engine_t;

/// Ids are dense from 0 in the order of registration.
typedef uint32_t commsched_module_id_t;
typedef uint32_t commsched_parameter_id_t;

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_TYPES_H_

/// commsched: schedules the communication of distributed training.
///
/// Conventions, true of every function:
/// 1. What can fail returns commsched_status_t; outputs come last, are called
///    `out_*` and are written on success only. commsched_last_error() has the
///    message.
/// 2. Handles are opaque. `_destroy` returns nothing and accepts NULL; a parent
///    lives until its last child goes.
/// 3. Options structs begin with `struct_size`, are made by their inline
///    `_init()`, grow at the end only, and 0 means what older callers expect.
/// 4. Descriptors and strings are copied; buffers stay the caller's.
/// 5. `Threads:` says who may call; nothing else may. No callback is called
/// with
///    a lock held.
/// 6. The library never exits, aborts or prints to stdout.
#ifndef COMMSCHED_COMMSCHED_H_
#define COMMSCHED_COMMSCHED_H_

#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/group.h"
#include "commsched/log.h"
#include "commsched/plan.h"
#include "commsched/session.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/trace.h"
#include "commsched/types.h"
#include "commsched/version.h"
#include "commsched/world.h"

#endif  // COMMSCHED_COMMSCHED_H_

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
///    A struct that the library fills is made by its `_init()` too. Structs
///    without `struct_size` never grow. An array in a struct and its count are
///    set both or not at all: one of them alone is INVALID_ARGUMENT.
/// 4. Descriptors and strings are copied; buffers stay the caller's.
/// 5. `Threads:` says who may call; nothing else may. No lock is held while a
///    callback of the caller's runs, but for the log's.
/// 6. Functions that return a plain number return 0, or -1 for a rank, if
///    their handle is NULL.
/// 7. The library never exits, aborts or prints to stdout.
///
/// The rules at length: docs/abi.md. C++: commsched/commsched.hpp.
#ifndef COMMSCHED_COMMSCHED_H_
#define COMMSCHED_COMMSCHED_H_

#include "commsched/agree.h"
#include "commsched/channel.h"
#include "commsched/completions.h"
#include "commsched/control.h"
#include "commsched/export.h"
#include "commsched/gather.h"
#include "commsched/graph.h"
#include "commsched/group.h"
#include "commsched/info.h"
#include "commsched/link_profile.h"
#include "commsched/log.h"
#include "commsched/plan.h"
#include "commsched/recording.h"
#include "commsched/session.h"
#include "commsched/session_capture.h"
#include "commsched/session_info.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/trace.h"
#include "commsched/types.h"
#include "commsched/version.h"
#include "commsched/waits.h"
#include "commsched/world.h"

#endif  // COMMSCHED_COMMSCHED_H_

/// Waits: what the ranks of this process wait for, when a job does not get on.
#ifndef COMMSCHED_WAITS_H_
#define COMMSCHED_WAITS_H_

#include <stdint.h>

#include "commsched/export.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Says what the ranks of this process are at, one line each: calls of the
/// library that wait for other ranks (joining, creating a session, agreeing),
/// and of each session its step, the op whose `before` waits and for which
/// launch, the oldest launch that is not complete, since when, and which ranks
/// have not issued it, or do not say, if the backend knows. "" if there is
/// neither.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any, also while other threads wait in calls of the library.
/// Blocks:    for 50 ms a session at most, where a backend does not return, or
///            another rank does not say what it has issued.
/// Errors:    INVALID_ARGUMENT    NULL
///            RESOURCE_EXHAUSTED  no memory for the text
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_waits_describe(char** out_text);

/// From here on `signal` makes the process say that, as log lines which no
/// level silences, and go on. Without this call the library takes a signal only
/// where COMMSCHED_SIGQUIT is `on`, as `commsched run` sets it: then SIGQUIT,
/// from the moment at which a world is made or joined, unless the process has
/// its own handler or ignores it.
///
/// Threads:   any. The lines come from a thread of the library, which it makes
///            for the purpose and which lives as long as the process.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     no signal of that number, or one that cannot
///                                 be caught
///            FAILED_PRECONDITION  the process has its own handler for it, or
///                                 ignores it
///            RESOURCE_EXHAUSTED   no thread, no descriptor
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_waits_print_on(int32_t signal);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_WAITS_H_

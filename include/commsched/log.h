/// Where the library's log lines go.
#ifndef COMMSCHED_LOG_H_
#define COMMSCHED_LOG_H_

#include <stdint.h>

#include "commsched/export.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  COMMSCHED_LOG_DEBUG = 0,
  COMMSCHED_LOG_INFO = 1,
  COMMSCHED_LOG_WARNING = 2,
  COMMSCHED_LOG_ERROR = 3
};

/// Receives one line, without a newline. Must not call the library.
typedef void (*commsched_log_fn)(void* user, int32_t level,
                                 const char* message);

/// Sends log lines of `min_level` and above to `fn`; NULL sends them to stderr,
/// as at the start, where COMMSCHED_LOG sets the level. A `min_level` below
/// DEBUG means DEBUG, one above ERROR silences the log.
///
/// Ownership: `user` must outlive the registration.
/// Threads:   any; `fn` may be called from any thread, one call at a time.
/// Blocks:    until a call of the previous callback has returned.
/// Since:     0.1
COMMSCHED_API void commsched_set_log_callback(commsched_log_fn fn, void* user,
                                              int32_t min_level);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_LOG_H_

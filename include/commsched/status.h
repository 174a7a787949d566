/// Status codes and the message of the last error.
#ifndef COMMSCHED_STATUS_H_
#define COMMSCHED_STATUS_H_

#include <stdint.h>

#include "commsched/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Result of every public function that can fail. The numbers are those of
/// absl::StatusCode and never change.
typedef int32_t commsched_status_t;

enum {
  COMMSCHED_OK = 0,
  COMMSCHED_CANCELLED = 1,
  COMMSCHED_UNKNOWN = 2,
  COMMSCHED_INVALID_ARGUMENT = 3,
  COMMSCHED_DEADLINE_EXCEEDED = 4,
  COMMSCHED_NOT_FOUND = 5,
  COMMSCHED_ALREADY_EXISTS = 6,
  COMMSCHED_PERMISSION_DENIED = 7,
  COMMSCHED_RESOURCE_EXHAUSTED = 8,
  COMMSCHED_FAILED_PRECONDITION = 9,
  COMMSCHED_ABORTED = 10,
  COMMSCHED_OUT_OF_RANGE = 11,
  COMMSCHED_UNIMPLEMENTED = 12,
  COMMSCHED_INTERNAL = 13,
  COMMSCHED_UNAVAILABLE = 14,
  COMMSCHED_DATA_LOSS = 15,
  COMMSCHED_UNAUTHENTICATED = 16
};

/// Returns the name of `status` ("INVALID_ARGUMENT", "OK"), or "UNKNOWN_CODE".
///
/// Ownership: a static string.
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API const char* commsched_status_name(commsched_status_t status);

/// Returns the message of the last failed call made by this thread, of this
/// library or of one on top of it (commsched_set_last_error()).
///
/// The message names the object, the value and the limit. A call that succeeds
/// leaves it as it was; "" if no call of this thread has failed.
///
/// Ownership: the library's; valid until the next failing call on this thread.
/// Threads:   any; each thread has its own message.
/// Since:     0.1
COMMSCHED_API const char* commsched_last_error(void);

/// Makes `message` what commsched_last_error() returns on this thread: for a
/// library on top of this one, whose failures are then read in the same way, or
/// which puts back what was there before it tried something. NULL means "".
///
/// Ownership: `message` is copied; it may be what commsched_last_error()
///            returned.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_set_last_error(const char* message);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_STATUS_H_

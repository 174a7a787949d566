#ifndef COMMSCHED_EXAMPLES_TRAINER_STATUS_MACROS_H_
#define COMMSCHED_EXAMPLES_TRAINER_STATUS_MACROS_H_

#include "absl/status/status.h"

// Returns from the enclosing function if `expression`, a Status, failed.
#define TRAINER_RETURN_IF_ERROR(expression)                 \
  do {                                                      \
    if (absl::Status status = (expression); !status.ok()) { \
      return status;                                        \
    }                                                       \
  } while (false)

#endif  // COMMSCHED_EXAMPLES_TRAINER_STATUS_MACROS_H_

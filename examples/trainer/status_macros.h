#ifndef COMMSCHED_EXAMPLES_TRAINER_STATUS_MACROS_H_
#define COMMSCHED_EXAMPLES_TRAINER_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expression`, a Status, failed.
#define TRAINER_RETURN_IF_ERROR(expression)                 \
  do {                                                      \
    if (absl::Status status = (expression); !status.ok()) { \
      return status;                                        \
    }                                                       \
  } while (false)

// Gives `target`, which may be a declaration, the value of `expression`, a
// StatusOr, or returns its status. Several statements: not for a bare `if`.
#define TRAINER_ASSIGN_OR_RETURN(target, expression)                    \
  TRAINER_ASSIGN_OR_RETURN_(TRAINER_JOIN_(value_or_, __LINE__), target, \
                            expression)
#define TRAINER_ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return std::move(result).status();        \
  target = *std::move(result)
#define TRAINER_JOIN_(a, b) TRAINER_JOIN_AGAIN_(a, b)
#define TRAINER_JOIN_AGAIN_(a, b) a##b

#endif  // COMMSCHED_EXAMPLES_TRAINER_STATUS_MACROS_H_

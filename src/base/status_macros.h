// Passing an error on without a ladder of ifs.
#ifndef COMMSCHED_SRC_BASE_STATUS_MACROS_H_
#define COMMSCHED_SRC_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                          \
  do {                                                 \
    absl::Status commsched_status_ = (expr);           \
    if (ABSL_PREDICT_FALSE(!commsched_status_.ok())) { \
      return commsched_status_;                        \
    }                                                  \
  } while (false)

// Assigns the value of the StatusOr `expr` to `lhs`, which may be a
// declaration, or returns its status. Two statements: not for a bare `if`.
// A comma in `lhs` outside parentheses (a map's type) needs a type alias.
#define ASSIGN_OR_RETURN(lhs, expr) \
  COMMSCHED_ASSIGN_OR_RETURN_(      \
      COMMSCHED_CONCAT_(commsched_statusor_, __LINE__), lhs, expr)

#define COMMSCHED_ASSIGN_OR_RETURN_(statusor, lhs, expr) \
  auto statusor = (expr);                                \
  if (ABSL_PREDICT_FALSE(!statusor.ok())) {              \
    return std::move(statusor).status();                 \
  }                                                      \
  lhs = *std::move(statusor)

#define COMMSCHED_CONCAT_(a, b) COMMSCHED_CONCAT_INNER_(a, b)
#define COMMSCHED_CONCAT_INNER_(a, b) a##b

#endif  // COMMSCHED_SRC_BASE_STATUS_MACROS_H_

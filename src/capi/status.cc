#include "commsched/status.h"

const char* commsched_status_name(commsched_status_t status) {
  static const char* const kNames[] = {
      "OK",
      "CANCELLED",
      "UNKNOWN",
      "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "ABORTED",
      "OUT_OF_RANGE",
      "UNIMPLEMENTED",
      "INTERNAL",
      "UNAVAILABLE",
      "DATA_LOSS",
      "UNAUTHENTICATED",
  };
  constexpr int kNumCodes = sizeof(kNames) / sizeof(kNames[0]);
  static_assert(kNumCodes == COMMSCHED_UNAUTHENTICATED + 1,
                "every code has a name");
  if (status < 0 || status >= kNumCodes) return "UNKNOWN_CODE";
  return kNames[status];
}

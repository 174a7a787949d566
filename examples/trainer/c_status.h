#ifndef COMMSCHED_EXAMPLES_TRAINER_C_STATUS_H_
#define COMMSCHED_EXAMPLES_TRAINER_C_STATUS_H_

#include "absl/status/status.h"
#include "commsched/engine.h"

namespace commsched::trainer {

// What a call of the C ABI returned on this thread, with its message.
inline absl::Status FromCode(commsched_status_t code, const char* message) {
  if (code == COMMSCHED_OK) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

inline absl::Status FromCore(commsched_status_t code) {
  return FromCode(code, commsched_last_error());
}

inline absl::Status FromEngine(commsched_status_t code) {
  return FromCode(code, commsched_engine_last_error());
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_C_STATUS_H_

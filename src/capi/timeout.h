#ifndef COMMSCHED_SRC_CAPI_TIMEOUT_H_
#define COMMSCHED_SRC_CAPI_TIMEOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

// The limit that a caller gives in `field` of its description; 0 there stands
// for COMMSCHED_TIMEOUT_S. kInvalidArgument, naming the field or the variable,
// if it is below 0, or what the environment says is none.
absl::StatusOr<int64_t> TimeoutNs(absl::string_view field, int64_t given_ns);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_TIMEOUT_H_

#include "capi/timeout.h"

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"

namespace commsched {

absl::StatusOr<int64_t> TimeoutNs(absl::string_view field, int64_t given_ns) {
  if (given_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.", field, " is ", given_ns, ", below 0"));
  }
  if (given_ns > 0) return given_ns;
  ASSIGN_OR_RETURN(const int64_t seconds,
                   Env::Process().Get("COMMSCHED_TIMEOUT_S"));
  return seconds * 1'000'000'000;
}

}  // namespace commsched

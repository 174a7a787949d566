#include "control/messages.h"

namespace commsched {

absl::Status StatusFrom(uint32_t code, absl::string_view message) {
  constexpr auto kLast =
      static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(code > kLast ? absl::StatusCode::kInternal
                                   : static_cast<absl::StatusCode>(code),
                      message);
}

}  // namespace commsched

#include "base/thread.h"

#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace commsched {

absl::StatusOr<std::thread> StartThread(absl::string_view what,
                                        std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", what, ": ", e.code().message()));
  }
}

}  // namespace commsched

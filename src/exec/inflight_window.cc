#include "exec/inflight_window.h"

#include "absl/strings/str_cat.h"

namespace commsched {

absl::Status InflightWindow::NotTaken(uint64_t bytes) const {
  return absl::InternalError(
      absl::StrCat("release of a launch of ", bytes, " bytes with ", launches_,
                   " launches of ", bytes_, " bytes in flight"));
}

}  // namespace commsched

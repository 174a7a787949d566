#include "exec/inflight_window.h"

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

void RaiseTo(std::atomic<uint64_t>& peak, uint64_t value) {
  if (value > peak.load(std::memory_order_relaxed)) {
    peak.store(value, std::memory_order_relaxed);
  }
}

}  // namespace

bool InflightWindow::TryAdmit(uint64_t bytes) {
  if (launches_ > 0) {
    if (limits_.max_launches != 0 && launches_ >= limits_.max_launches) {
      return false;
    }
    if (limits_.max_bytes != 0 &&
        (bytes > limits_.max_bytes || bytes_ > limits_.max_bytes - bytes)) {
      return false;
    }
  }
  ++launches_;
  bytes_ += bytes;
  RaiseTo(peak_launches_, launches_);
  RaiseTo(peak_bytes_, bytes_);
  return true;
}

absl::Status InflightWindow::Release(uint64_t bytes) {
  if (launches_ == 0 || bytes > bytes_ || (launches_ == 1 && bytes != bytes_)) {
    return absl::InternalError(
        absl::StrCat("release of a launch of ", bytes, " bytes with ",
                     launches_, " launches of ", bytes_, " bytes in flight"));
  }
  --launches_;
  bytes_ -= bytes;
  return absl::OkStatus();
}

}  // namespace commsched

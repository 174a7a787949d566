#include "examples/trainer/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"

namespace commsched::trainer {

ProgressBar::ProgressBar(std::FILE* stream, int64_t total, const char* relay)
    : stream_(stream),
      total_(std::max<int64_t>(total, 1)),
      draws_(isatty(fileno(stream)) == 1 ||
             (relay != nullptr && *relay != '\0')) {}

void ProgressBar::Update(int64_t done, absl::string_view note) {
  constexpr int64_t kWidth = 30;
  if (!draws_) return;
  done = std::clamp<int64_t>(done, 0, total_);
  const int64_t thousandths = done * 1000 / total_;
  if (thousandths == drawn_thousandths_) return;
  drawn_thousandths_ = thousandths;
  const int64_t filled = done * kWidth / total_;
  absl::FPrintF(stream_, "\r[%s%s] %d/%d  %s\033[K", std::string(filled, '#'),
                std::string(kWidth - filled, '.'), done, total_, note);
  std::fflush(stream_);
}

void ProgressBar::Clear() {
  if (!draws_ || drawn_thousandths_ < 0) return;
  drawn_thousandths_ = -1;
  absl::FPrintF(stream_, "\r\033[K");
  std::fflush(stream_);
}

}  // namespace commsched::trainer

#ifndef COMMSCHED_EXAMPLES_TRAINER_PROGRESS_BAR_H_
#define COMMSCHED_EXAMPLES_TRAINER_PROGRESS_BAR_H_

#include <cstdint>
#include <cstdio>

#include "absl/strings/string_view.h"

namespace commsched::trainer {

// One line that is redrawn in place. Draws only on a terminal, or on a pipe to
// who draws on one: elsewhere it would be noise.
//
// Thread-compatible.
class ProgressBar {
 public:
  // `stream`, usually stderr, outlives the bar. `relay` is the variable
  // COMMSCHED_TERMINAL, with which the launcher says that it passes a bar on;
  // null or "": it does not.
  ProgressBar(std::FILE* stream, int64_t total, const char* relay = nullptr);

  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Shows that `done` of the total is done, and `note` behind the bar. Updates
  // that do not move the bar by a thousandth are left out.
  void Update(int64_t done, absl::string_view note);

  // Wipes the line, so that normal output can follow.
  void Clear();

 private:
  std::FILE* const stream_;
  const int64_t total_;
  const bool draws_;
  int64_t drawn_thousandths_ = -1;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_PROGRESS_BAR_H_

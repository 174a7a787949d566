#ifndef COMMSCHED_EXAMPLES_TRAINER_RANK_LOG_H_
#define COMMSCHED_EXAMPLES_TRAINER_RANK_LOG_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/step_log.h"

namespace commsched::trainer {

// What one rank tells the log of its steps: of each when the next one is over,
// since its launches may run on under that one.
//
// Thread-compatible: the rank's thread.
class RankLog {
 public:
  // `log`, unless it is null, and `rank`, the `index`-th, outlive this.
  // `first_step` is the step that its trace calls 0.
  RankLog(StepSink* log, const Rank& rank, int64_t index, int64_t first_step)
      : log_(log), rank_(rank), index_(index), first_step_(first_step) {}

  // Around a step.
  void Begin();
  absl::Status End(int64_t step, double loss);

  // After a drain: of the last step, too.
  absl::Status Finish();

 private:
  StepSink* const log_;
  const Rank& rank_;
  const int64_t index_;
  const int64_t first_step_;
  std::chrono::steady_clock::time_point begun_;
  std::optional<int64_t> last_step_;  // That the log has not been told of.
  StepLog::Entry last_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_RANK_LOG_H_

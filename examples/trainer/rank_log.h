#ifndef COMMSCHED_EXAMPLES_TRAINER_RANK_LOG_H_
#define COMMSCHED_EXAMPLES_TRAINER_RANK_LOG_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "commsched/commsched.h"
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

// What the ranks of a job of processes tell of their steps, brought to the log
// of rank 0 by a thread of its own, so that no rank waits for another.
//
// Thread-safe.
class GatheredLog final : public StepSink {
 public:
  // `context`, and `log` of rank 0, else null, outlive this.
  GatheredLog(commsched_context_t* context, StepLog* log)
      : context_(context), log_(log), thread_([this] { Run(); }) {}
  // Ends what Finish() has not; after a failure it may wait for the other ranks
  // to end, too.
  ~GatheredLog() override { Finish(); }
  GatheredLog(const GatheredLog&) = delete;
  GatheredLog& operator=(const GatheredLog&) = delete;

  void Add(int64_t rank, int64_t step, const StepLog::Entry& entry) override;

  // Blocks until all that this rank has told has arrived, or cannot any more.
  void Finish();

 private:
  // What one rank tells of one step.
  struct Told {
    int64_t step = 0;
    StepLog::Entry entry;
  };

  void Run();
  // Brings one step's together; false if that has become impossible.
  bool GatherStep(const Told& mine);

  commsched_context_t* const context_;
  StepLog* const log_;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::deque<Told> told_;
  bool ends_ = false;

  std::thread thread_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_RANK_LOG_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_GATHERED_LOG_H_
#define COMMSCHED_EXAMPLES_TRAINER_GATHERED_LOG_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "commsched/commsched.h"
#include "examples/trainer/step_log.h"

namespace commsched::trainer {

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
  void Run();
  // Brings one step's together; false if that has become impossible.
  bool Gather(const std::string& mine);

  commsched_context_t* const context_;
  StepLog* const log_;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::deque<std::string> told_;
  bool ends_ = false;

  std::thread thread_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_GATHERED_LOG_H_

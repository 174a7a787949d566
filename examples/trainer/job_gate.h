#ifndef COMMSCHED_EXAMPLES_TRAINER_JOB_GATE_H_
#define COMMSCHED_EXAMPLES_TRAINER_JOB_GATE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace commsched::trainer {

// A StepGate for ranks that are processes, each of which has one. A launcher
// passes a request to end early on to all of them, to each at another step.
//
// A rank that has been asked shows the others the last step that it has begun,
// and begins no further one before all have shown theirs: a thread of its own
// does so, since the rank may be waiting for others within a step. The last of
// these steps is the last of the run. If the others do not show theirs in time,
// the request is dropped.
//
// Enter, end and ended_early are for the rank's thread.
class JobGate {
 public:
  // Shows `begun`, and returns what all ranks show. On the gate's thread.
  using Show =
      std::function<absl::StatusOr<std::vector<int64_t>>(int64_t begun)>;

  // Steps `first` to `end` - 1. `request` as of StepGate.
  JobGate(int64_t first, int64_t end, const std::atomic<int>* request,
          Show show);
  ~JobGate();
  JobGate(const JobGate&) = delete;
  JobGate& operator=(const JobGate&) = delete;

  bool Enter(int64_t step);
  int64_t end() const { return end_; }
  bool ended_early() const { return end_ < planned_end_; }

 private:
  void Watch(const std::atomic<int>& request);

  const int64_t planned_end_;
  const Show show_;
  int64_t end_;  // Of the rank's thread; it takes over agreed_end_.

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  int64_t begun_;       // The last step begun.
  bool shows_ = false;  // No step may be begun.
  int64_t agreed_end_;
  bool over_ = false;

  std::thread thread_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_JOB_GATE_H_

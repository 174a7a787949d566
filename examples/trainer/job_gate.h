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

// A StepGate for ranks that are processes, each of which has one. One rank may
// be asked to end early, or all of them by their launcher, each at another
// step; all end after the same step.
//
// A thread of its own meets those of the other ranks a few times a second, and
// shows whether its rank has been asked: a step costs nothing, and a rank that
// waits for others within a step can be asked, too. Once one has been asked,
// all show the last step that they have begun, and begin no further one before
// all have shown theirs. The last of these steps is the last of the run.
//
// Enter, end, ended_early and signal are for the rank's thread.
class JobGate {
 public:
  // What a rank shows the others.
  struct Shown {
    int64_t begun = 0;    // The last step that it has begun.
    int32_t signal = 0;   // With which it has been asked to end; 0: it is not.
    int32_t is_over = 0;  // It takes no further step.
  };
  // Shows `mine`, and returns what all ranks show. Of kDeadlineExceeded all
  // ranks that come to the same meeting hear, and the next one is tried; after
  // another failure ranks can agree on nothing any more. On the gate's thread.
  using Meet =
      std::function<absl::StatusOr<std::vector<Shown>>(const Shown& mine)>;

  // Steps `first` to `end` - 1. `request` as of StepGate; where it is null no
  // rank can be asked.
  JobGate(int64_t first, int64_t end, const std::atomic<int>* request,
          Meet meet);
  // Waits for the others to be over as well, so that none waits for this one in
  // a meeting; but not for long.
  ~JobGate();
  JobGate(const JobGate&) = delete;
  JobGate& operator=(const JobGate&) = delete;

  bool Enter(int64_t step);
  int64_t end() const { return end_; }
  bool ended_early() const { return end_ < planned_end_; }
  // Once it has ended early: the signal that asked for it, on all ranks the
  // same.
  int signal() const { return signal_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void Watch(const std::atomic<int>& request);
  bool AwaitNextMeeting(Lock* lock, const std::atomic<int>& request,
                        size_t num_ranks);
  bool AgreeOnEnd(Lock* lock, int signal);

  const int64_t planned_end_;
  const Meet meet_;
  // Of the rank's thread; it takes them over from what is agreed.
  int64_t end_;
  int signal_ = 0;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  int64_t begun_;       // The last step begun.
  bool shows_ = false;  // No step may be begun.
  int64_t agreed_end_;
  int agreed_signal_ = 0;
  bool is_over_ = false;

  std::thread thread_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_JOB_GATE_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_
#define COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace commsched::trainer {

// Decides, for all ranks alike, which step is the last one where a run is to
// end early. Ranks are not at the same step when that is asked for, and a rank
// that takes a step more than the others waits for them.
//
// Ranks that are threads share a gate. A step that one rank has begun is begun
// by all. The first rank to ask for a new step after the request is refused,
// and with it every other one.
//
// Ranks that are processes have a gate each. One rank may be asked to end
// early, or all of them by their launcher, each at another step; all end after
// the same step. A thread of the gate meets those of the other ranks a few
// times a second, and shows whether its rank has been asked: a step costs
// nothing, and a rank that waits for others within a step can be asked, too.
// Once one has been asked, all show the last step that they have begun, and
// begin no further one before all have shown theirs. The last of these steps is
// the last of the run.
//
// Thread-safe.
class StepGate {
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

  // Steps `first` to `end` - 1, of which the first is always taken. Not 0 in
  // `request`, which outlives the gate, asks to end early; null: nobody does.
  // `meet`: of ranks that are processes.
  StepGate(int64_t first, int64_t end, const std::atomic<int>* request,
           Meet meet = nullptr);
  // Waits for the others to be over as well, so that none waits for this one in
  // a meeting; but not for long.
  ~StepGate();
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // Whether the calling rank takes `step`. Each rank asks for `first`, then the
  // next, until it is refused.
  bool Enter(int64_t step);

  // Once a rank was refused: the number of the last step + 1, whether that is
  // less than was planned, and then the signal that asked for it, else 0: on
  // all ranks the same.
  int64_t end() const;
  bool ended_early() const { return end() < planned_end_; }
  int signal() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void Watch();
  bool AwaitNextMeeting(Lock* lock, size_t num_ranks);
  bool AgreeOnEnd(Lock* lock, int signal);
  int Requested() const { return request_ == nullptr ? 0 : request_->load(); }
  Shown MineLocked(int signal) const {
    return {.begun = next_ - 1, .signal = signal, .is_over = is_over_ ? 1 : 0};
  }

  const int64_t planned_end_;
  const std::atomic<int>* const request_;
  const Meet meet_;

  mutable std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  int64_t next_;        // The first step that nobody has begun.
  bool shows_ = false;  // No step may be begun.
  int64_t end_;
  int signal_ = 0;
  bool is_over_ = false;

  std::thread thread_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_

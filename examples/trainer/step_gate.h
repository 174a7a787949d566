#ifndef COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_
#define COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace commsched::trainer {

// Decides, for all ranks alike, which step is the last one where a run is to
// end early. Ranks are not at the same step when that is asked for, and a rank
// that takes a step more than the others waits for them.
//
// A step that one rank has begun is begun by all. The first rank to ask for a
// new step after the request is refused, and with it every other one.
//
// Thread-safe.
class StepGate {
 public:
  // Steps `first` to `end` - 1, of which the first is always taken. Not 0 in
  // `request` asks to end early; null: nobody does. It outlives the gate.
  StepGate(int64_t first, int64_t end, const std::atomic<int>* request)
      : first_(first),
        planned_end_(end),
        request_(request),
        next_(first),
        end_(end) {}

  // Whether the calling rank takes `step`. Each rank asks for `first`, then the
  // next, until it is refused.
  bool Enter(int64_t step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_new = step >= next_ && step > first_;
    if (is_new && request_ != nullptr && *request_ != 0) {
      end_ = std::min(end_, step);
    }
    if (step >= end_) return false;
    next_ = std::max(next_, step + 1);
    return true;
  }

  // Once a rank was refused: the number of the last step + 1, and whether it
  // ended early.
  int64_t end() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return end_;
  }
  bool ended_early() const { return end() < planned_end_; }

 private:
  const int64_t first_;
  const int64_t planned_end_;
  const std::atomic<int>* const request_;

  mutable std::mutex mutex_;  // Guards what follows.
  int64_t next_;              // The first step that nobody has begun.
  int64_t end_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_
#define COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_

#include <atomic>
#include <cstdint>

namespace commsched::trainer {

// Decides, for all ranks alike, which step is the last one where a run is to
// end early. Ranks are not at the same step when that is asked for, and a rank
// that takes a step more than the others waits for them.
//
// A step that one rank has begun is begun by all. The first rank to ask for a
// new step after the request is refused, and with it every other one.
//
// Thread-safe, without a lock: it is asked in every step.
class StepGate {
 public:
  // Steps `first` to `end` - 1, of which the first is always taken. Not 0 in
  // `request` asks to end early; null: nobody does. It outlives the gate.
  StepGate(int64_t first, int64_t end, const std::atomic<int>* request)
      : first_(first), end_(end), request_(request), state_(first * 2) {}

  // Whether the calling rank takes `step`. Each rank asks for `first`, then the
  // next, until it is refused.
  bool Enter(int64_t step) {
    if (step >= end_) return false;
    int64_t state = state_.load(std::memory_order_acquire);
    for (;;) {
      if (step < state / 2) return true;
      if (state % 2 == 1) return false;
      const bool closes = step > first_ && requested();
      const int64_t next = closes ? state + 1 : state + 2;
      if (state_.compare_exchange_weak(state, next,
                                       std::memory_order_acq_rel)) {
        return !closes;
      }
    }
  }

  // Once a rank was refused: the number of the last step + 1.
  int64_t end() const { return state_.load(std::memory_order_acquire) / 2; }

  // Whether it ended early.
  bool ended_early() const {
    return end() < end_ && state_.load(std::memory_order_acquire) % 2 == 1;
  }

 private:
  bool requested() const {
    return request_ != nullptr &&
           request_->load(std::memory_order_acquire) != 0;
  }

  const int64_t first_;
  const int64_t end_;
  const std::atomic<int>* const request_;

  // Twice the number of the next step that nobody has begun; odd: nobody will.
  std::atomic<int64_t> state_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_STEP_GATE_H_

#include "examples/trainer/step_gate.h"

namespace commsched::trainer {

bool StepGate::Enter(int64_t step) {
  if (step >= end_) return false;
  int64_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    if (step < state / 2) return true;
    if (state % 2 == 1) return false;
    const bool closes = step > first_ && requested();
    const int64_t next = closes ? state + 1 : state + 2;
    if (state_.compare_exchange_weak(state, next, std::memory_order_acq_rel)) {
      return !closes;
    }
  }
}

}  // namespace commsched::trainer

// A place in the launches of all steps.
#ifndef COMMSCHED_SRC_EXEC_LAUNCH_CURSOR_H_
#define COMMSCHED_SRC_EXEC_LAUNCH_CURSOR_H_

#include <cstdint>

namespace commsched {

// Launch `number` of all steps is launch `index` of step `step`. Kept together,
// so that going on costs no division.
class LaunchCursor {
 public:
  // At launch 0 of step 0.
  explicit LaunchCursor(uint32_t launches_per_step)
      : launches_per_step_(launches_per_step) {}

  uint64_t number() const { return number_; }
  uint64_t step() const { return step_; }
  uint32_t index() const { return index_; }

  void Advance() {
    ++number_;
    if (++index_ != launches_per_step_) return;
    index_ = 0;
    ++step_;
  }
  // `index` may be the number of launches of a step: then to the next step.
  void MoveTo(uint64_t step, uint32_t index) {
    number_ = step * launches_per_step_ + index;
    step_ = index == launches_per_step_ ? step + 1 : step;
    index_ = index == launches_per_step_ ? 0 : index;
  }

 private:
  uint32_t launches_per_step_;
  uint32_t index_ = 0;
  uint64_t step_ = 0;
  uint64_t number_ = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_LAUNCH_CURSOR_H_

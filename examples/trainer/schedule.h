#ifndef COMMSCHED_EXAMPLES_TRAINER_SCHEDULE_H_
#define COMMSCHED_EXAMPLES_TRAINER_SCHEDULE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace commsched::trainer {

struct LearningRateSchedule {
  double peak = 3e-3;
  int64_t warmup_steps = 30;
  int64_t total_steps = 300;
  double final_fraction = 0.1;  // Of the peak, reached at the last step.
};

// The rate of step 0, 1, ...: linear up to the peak, which step
// `warmup_steps - 1` has, then half a cosine down. Steps past the end keep the
// final rate.
inline double LearningRateAt(const LearningRateSchedule& schedule,
                             int64_t step) {
  constexpr double kPi = 3.141592653589793;
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  const int64_t span = schedule.total_steps - schedule.warmup_steps;
  const double progress =
      span <= 0
          ? 1.0
          : std::min(1.0,
                     static_cast<double>(step + 1 - schedule.warmup_steps) /
                         static_cast<double>(span));
  const double cosine = 0.5 * (1.0 + std::cos(kPi * progress));
  return schedule.peak *
         (schedule.final_fraction + (1.0 - schedule.final_fraction) * cosine);
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_SCHEDULE_H_

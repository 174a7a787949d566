#ifndef COMMSCHED_SRC_PLAN_PREDICT_STEADY_STATE_H_
#define COMMSCHED_SRC_PLAN_PREDICT_STEADY_STATE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace commsched {

// Watches times that a step-by-step recurrence yields, until each step repeats
// the one before, shifted by the period. Recurrences of max and + on bounded
// graphs get there, or to a cycle of a few steps, after a transient.
class SteadyState {
 public:
  static constexpr int kMaxSteps = 64;

  // Takes the times of the next step. True: it is the last one needed.
  bool Add(const std::vector<int64_t>& times) {
    ends_.push_back(
        times.empty() ? 0 : *std::max_element(times.begin(), times.end()));
    bool shifted = !last_.empty();
    for (size_t i = 0; i < last_.size() && shifted; ++i) {
      shifted = times[i] - last_[i] == times[0] - last_[0];
    }
    last_ = times;
    // Twice, as what a recurrence carries over need not all be in `times`.
    repeats_ = shifted ? repeats_ + 1 : 0;
    exact_ = repeats_ >= 2;
    return exact_ || ends_.size() == kMaxSteps;
  }

  // Whether the steps have come to repeat, so that Period() is no mean.
  bool exact() const { return exact_; }

  // The period: exact, or else the mean of the second half of the steps, which
  // is exact if the steps repeat in a cycle of 1, 2, 4, 8, 16 or 32.
  int64_t Period() const {
    const size_t n = ends_.size();
    if (n < 2) return n == 0 ? 0 : ends_[0];
    if (exact_) return ends_[n - 1] - ends_[n - 2];
    return (ends_[n - 1] - ends_[n / 2 - 1]) / static_cast<int64_t>(n - n / 2);
  }

 private:
  std::vector<int64_t> last_;
  std::vector<int64_t> ends_;
  int repeats_ = 0;
  bool exact_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_STEADY_STATE_H_

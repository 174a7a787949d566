#include "examples/trainer/validations.h"

#include <algorithm>

namespace commsched::trainer {

void Validations::Add(int64_t rank, int64_t steps_done, double loss) {
  const std::lock_guard<std::mutex> lock(mutex_);
  parts_[steps_done].push_back({rank, loss});
}

// Added in rank order, so that the sum is the same in every run.
std::optional<Validations::Complete> Validations::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto next = parts_.begin();
  if (next == parts_.end() ||
      static_cast<int64_t>(next->second.size()) < num_ranks_) {
    return std::nullopt;
  }
  std::sort(next->second.begin(), next->second.end(),
            [](const Part& a, const Part& b) { return a.rank < b.rank; });
  Complete complete = {.steps_done = next->first};
  for (const Part& part : next->second) complete.loss += part.loss;
  complete.loss /= static_cast<double>(num_ranks_);
  parts_.erase(next);
  return complete;
}

}  // namespace commsched::trainer

#ifndef COMMSCHED_EXAMPLES_TRAINER_VALIDATIONS_H_
#define COMMSCHED_EXAMPLES_TRAINER_VALIDATIONS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace commsched::trainer {

// The validation losses of a run: every rank adds its part, and a validation is
// complete with the last part. Only what is not yet complete or taken is kept.
//
// Thread-safe.
class Validations {
 public:
  explicit Validations(int64_t num_ranks) : num_ranks_(num_ranks) {}

  // `loss` is the mean over the windows of `rank`, of which each rank has as
  // many. Once per rank and `steps_done`.
  void Add(int64_t rank, int64_t steps_done, double loss);

  struct Complete {
    int64_t steps_done = 0;
    double loss = 0;
  };
  // The next complete one, in the order of steps; each once.
  std::optional<Complete> Take();

 private:
  struct Part {
    int64_t rank;
    double loss;
  };

  const int64_t num_ranks_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<Part>> parts_;  // By steps; guarded by mutex_.
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_VALIDATIONS_H_

#ifndef COMMSCHED_TEST_TRAINER_TRAINING_RANKS_H_
#define COMMSCHED_TEST_TRAINER_TRAINING_RANKS_H_

#include <memory>
#include <vector>

#include "examples/trainer/architecture.h"
#include "examples/trainer/data.h"
#include "examples/trainer/options.h"
#include "examples/trainer/rank.h"

namespace commsched::trainer {

// Random bytes.
Dataset NoiseDataset();

// What came of a step; means over the ranks.
struct RanksOutcome {
  double loss = 0;
  double val_loss = 0;  // Before it.
  std::vector<std::vector<float>> weights;
};

// How far a step of gradient descent from the initial weights, of seed 1, has
// missed `expected`, relative to its length; infinite if that has none.
double StepError(const ParameterSpec& spec, const std::vector<float>& actual,
                 const std::vector<float>& expected);

// The ranks of a run on noise, drawn with seed 1. What fails fails the test.
class TrainingRanks {
 public:
  explicit TrainingRanks(const Options& options);

  // Builds, evaluates and takes a step, each rank on a thread of its own, from
  // `weights` or, if that is null, the initial ones.
  RanksOutcome Step(const std::vector<std::vector<float>>* weights = nullptr);

  // What the ranks do in a step.
  const commsched_plan_t* plan() const {
    return commsched_step_plan_core_plan(ranks_[0]->step_plan());
  }

 private:
  const Options options_;
  const Dataset dataset_;
  const Sampler sampler_;
  WorldHandle world_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_TEST_TRAINER_TRAINING_RANKS_H_

#ifndef COMMSCHED_TEST_ENGINE_PLAIN_TRAINING_H_
#define COMMSCHED_TEST_ENGINE_PLAIN_TRAINING_H_

#include <cstdint>
#include <vector>

#include "test/engine/random_case.h"

namespace commsched::engine {

using Weights = std::vector<std::vector<float>>;  // By parameter.

// The training of a case by a plain loop, without buckets, shards and
// communication. It has the additions of the engine in their order, and its
// kernels: the same bits where that order is known.
//
// Thread-compatible.
class PlainTraining {
 public:
  explicit PlainTraining(const RandomCase& random_case);

  // After `step` steps.
  const Weights& After(size_t step) const { return after_[step]; }
  double last_norm() const { return last_norm_; }

 private:
  struct State {
    std::vector<float> value, m, v, gradient;
  };

  void Step(uint32_t step);
  void ReduceGradient(uint32_t step, uint32_t parameter);
  // The mean over the ranks, of micro-batches `first` to `last` - 1.
  std::vector<float> MeanGradient(uint32_t step, uint32_t parameter,
                                  uint32_t first, uint32_t last) const;
  double Norm() const;
  void StepParameter(uint32_t step, double gradient_scale, uint32_t parameter);
  void Keep();

  const RandomCase case_;
  std::vector<State> states_;
  std::vector<Weights> after_;
  double last_norm_ = 0;
};

constexpr float kLearningRate = 0.01f;

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_PLAIN_TRAINING_H_

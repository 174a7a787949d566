#ifndef COMMSCHED_TEST_ENGINE_PLAIN_TRAINING_H_
#define COMMSCHED_TEST_ENGINE_PLAIN_TRAINING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/update/loss_scale.h"
#include "test/engine/random_case.h"

namespace commsched::engine {

using Weights = std::vector<std::vector<float>>;  // By parameter.

// The training of a case by a plain loop, without buckets, shards and
// communication. It has the additions of the engine in their order, rounds
// where types differ, and has the engine's kernels: the same bits where that
// order is known.
//
// Thread-compatible.
class PlainTraining {
 public:
  explicit PlainTraining(const RandomCase& random_case);

  // What differs, as text; nothing where that can be due to the order of
  // additions. Of what the model reads after `step` steps, or of the last one.
  std::string CompareValues(size_t step, uint32_t parameter,
                            const float* values) const;
  std::string CompareNorm(double norm) const;
  std::string CompareLossScale(
      const commsched_engine_loss_scale_info_t& info) const;

 private:
  struct State {
    std::vector<float> master, value, m, v, gradient;
    double error = 0;  // Of the masters.
  };

  void Step(uint32_t step);
  void ReduceGradient(uint32_t step, uint32_t parameter);
  // The mean over the ranks, of micro-batches `first` to `last` - 1.
  std::vector<float> MeanGradient(uint32_t step, uint32_t parameter,
                                  uint32_t first, uint32_t last) const;
  // What a rank has to send.
  std::vector<float> GradientOf(GradientPlace place, uint32_t first,
                                uint32_t last) const;
  // Adds what the backwards of a micro-batch do.
  void AddBackwards(GradientPlace place, std::vector<float>& gradient) const;
  double Norm() const;
  // Whether no rank has a gradient of the parameter.
  bool IsAbsent(uint32_t step, uint32_t parameter) const;
  void SetControl();
  void StepParameter(uint32_t parameter);
  double GradientError(uint32_t step, uint32_t parameter) const;
  void AddErrors(uint32_t step);
  void Keep();

  const RandomCase case_;
  std::vector<State> states_;
  // By steps taken: what the model reads, and by how much another order of
  // additions can make an element of a parameter differ from it.
  std::vector<Weights> after_;
  std::vector<std::vector<double>> errors_;
  LossScale loss_scale_;
  double steps_ = 0;
  double last_norm_ = 0;
  double norm_error_ = 0;  // As errors_, in proportion.
};

constexpr float kLearningRate = 0.01f;

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_PLAIN_TRAINING_H_

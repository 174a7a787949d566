#ifndef COMMSCHED_TEST_TRAINER_RANK_MODEL_H_
#define COMMSCHED_TEST_TRAINER_RANK_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/trainer/model.h"

namespace commsched::trainer {

// A model with its parameters and gradients in one place, as a single process
// without any communication would hold them.
class RankModel {
 public:
  // Parameters and gradients are zero; fails the test if `config` is bad.
  RankModel(const GptConfig& config, int64_t batch, int64_t seq);

  // Random parameters that leave no gradient at zero: matrices normal with
  // deviation 0.05, vectors 0.1, weights of norms around 1.
  void FillParameters(uint64_t seed);

  // Forward over every module; returns the loss.
  float Forward();

  // Backward over every module, adding to `gradients`.
  void Backward();

  void ClearGradients();

  Gpt& gpt() { return *gpt_; }
  const Architecture& architecture() const { return gpt_->architecture(); }

  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> gradients;

 private:
  std::unique_ptr<Gpt> gpt_;
  std::vector<const float*> parameter_view_;
  std::vector<float*> gradient_view_;
};

// `rows` rows of seq + 1 random tokens, cut into inputs and targets.
struct TokenBatch {
  std::vector<uint8_t> inputs;
  std::vector<uint8_t> targets;
};
TokenBatch RandomTokens(int64_t vocab, int64_t rows, int64_t seq,
                        uint64_t seed);

// A model small enough to differentiate numerically.
inline constexpr GptConfig kTinyConfig = {
    .vocab = 11, .context = 9, .layers = 2, .heads = 2, .channels = 8};

}  // namespace commsched::trainer

#endif  // COMMSCHED_TEST_TRAINER_RANK_MODEL_H_

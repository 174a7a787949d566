// The nano model against PyTorch in double precision. reference.py wrote the
// numbers in reference_nano.json and says how to write them again.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "examples/trainer/architecture.h"
#include "examples/trainer/schedule.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "test/trainer/rank_model.h"
#include "test/trainer/tensor_digest.h"

namespace commsched::trainer {
namespace {

using nlohmann::json;

// AdamW with decay on matrices and clipping by global norm, as plainly as it
// can be written.
class PlainAdamW {
 public:
  PlainAdamW(RankModel& model, const json& config)
      : model_(model),
        beta1_(config["beta1"]),
        beta2_(config["beta2"]),
        epsilon_(config["epsilon"]),
        weight_decay_(config["weight_decay"]),
        clip_(config["clip"]) {
    for (const auto& parameter : model.parameters) {
      first_.emplace_back(parameter.size());
      second_.emplace_back(parameter.size());
    }
  }

  void Step(double rate) {
    ++step_;
    const double scale = ClipScale();
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      const bool decays = model_.architecture().parameters[i].decays();
      for (size_t j = 0; j < model_.parameters[i].size(); ++j) {
        const double gradient = scale * model_.gradients[i][j];
        Update(rate, decays, gradient, first_[i][j], second_[i][j],
               model_.parameters[i][j]);
      }
    }
  }

 private:
  double ClipScale() const {
    double squares = 0;
    for (const auto& gradient : model_.gradients) {
      for (double value : gradient) squares += value * value;
    }
    return std::min(1.0, clip_ / (std::sqrt(squares) + 1e-6));
  }

  void Update(double rate, bool decays, double gradient, double& first,
              double& second, float& value) const {
    first = beta1_ * first + (1 - beta1_) * gradient;
    second = beta2_ * second + (1 - beta2_) * gradient * gradient;
    const double mean = first / (1 - std::pow(beta1_, step_));
    const double square = second / (1 - std::pow(beta2_, step_));
    double next = value;
    if (decays) next -= rate * weight_decay_ * next;
    next -= rate * mean / (std::sqrt(square) + epsilon_);
    value = static_cast<float>(next);
  }

  RankModel& model_;
  const double beta1_;
  const double beta2_;
  const double epsilon_;
  const double weight_decay_;
  const double clip_;
  int step_ = 0;
  std::vector<std::vector<double>> first_;
  std::vector<std::vector<double>> second_;
};

class ParityTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(COMMSCHED_REFERENCE_NANO);
    ASSERT_TRUE(file) << "cannot open " << COMMSCHED_REFERENCE_NANO;
    reference_ = json::parse(file);
    seed_ = reference_["seed"];
    const int64_t batch = reference_["batch"];
    const int64_t seq = reference_["seq"];
    const GptConfig config = PresetOf("nano")->config;
    model_ = std::make_unique<RankModel>(config, batch, seq);
    model_->FillParameters(seed_);
    const TokenBatch tokens = RandomTokens(config.vocab, batch, seq, seed_);
    model_->gpt().SetBatch(tokens.inputs.data(), tokens.targets.data());
  }

  void ExpectDigest(const std::string& name, std::span<const float> values,
                    const json& expected, double tolerance) const {
    const auto num_samples = static_cast<int64_t>(expected["samples"].size());
    ASSERT_EQ(num_samples, 64) << name;
    ExpectClose(name, DigestOf(name, values, seed_, num_samples), expected,
                tolerance);
  }

  json reference_;
  uint64_t seed_ = 0;
  std::unique_ptr<RankModel> model_;
};

TEST_F(ParityTest, InitialWeightsAreTheOnesPythonGenerates) {
  const uint64_t seed = reference_["init_seed"];
  for (const ParameterSpec& spec : model_->architecture().parameters) {
    std::vector<float> values(spec.count);
    InitializeRange(spec, seed, 0, spec.count, values.data());
    const json& expected = reference_["init"].at(spec.name);
    const Digest actual = DigestOf(spec.name, values, seed_, 64);
    EXPECT_NEAR(actual.norm, expected["norm"], 1e-9 * actual.norm) << spec.name;
    for (size_t i = 0; i < actual.samples.size(); ++i) {
      const double sample = expected["samples"][i];
      EXPECT_EQ(static_cast<float>(actual.samples[i]),
                static_cast<float>(sample))
          << spec.name << " sample " << i;
    }
  }
}

TEST_F(ParityTest, FirstLossIsPyTorchs) {
  const double expected = reference_["loss"];
  EXPECT_NEAR(model_->Forward(), expected, 1e-5 * expected);
}

TEST_F(ParityTest, LogitsArePyTorchs) {
  model_->Forward();
  ExpectDigest("logits", model_->gpt().logits(), reference_["logits"], 1e-4);
}

TEST_F(ParityTest, EveryGradientIsPyTorchs) {
  model_->Forward();
  model_->Backward();
  const auto& specs = model_->architecture().parameters;
  ASSERT_EQ(specs.size(), reference_["gradients"].size());
  for (size_t i = 0; i < specs.size(); ++i) {
    ExpectDigest(specs[i].name, model_->gradients[i],
                 reference_["gradients"].at(specs[i].name), 1e-4);
  }
}

TEST_F(ParityTest, TenStepsOfAdamWFollowPyTorchsLosses) {
  const std::vector<double> expected = reference_["losses"];
  ASSERT_EQ(expected.size(), 10u);
  const json& config = reference_["schedule"];
  const LearningRateSchedule schedule = {
      .peak = config["peak"],
      .warmup_steps = config["warmup_steps"],
      .total_steps = config["total_steps"],
      .final_fraction = config["final_fraction"]};
  PlainAdamW optimizer(*model_, reference_["adamw"]);
  for (size_t step = 0; step < expected.size(); ++step) {
    model_->ClearGradients();
    EXPECT_NEAR(model_->Forward(), expected[step], 1e-3 * expected[step])
        << "step " << step;
    model_->Backward();
    optimizer.Step(LearningRateAt(schedule, static_cast<int64_t>(step)));
  }
}

}  // namespace
}  // namespace commsched::trainer

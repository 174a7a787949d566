#include "examples/trainer/model.h"

#include <cmath>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"
#include "test/trainer/counted_products.h"
#include "test/trainer/rank_model.h"

namespace commsched::trainer {
namespace {

using testing::HasSubstr;

GptConfig Nano() { return PresetOf("nano")->config; }

void SetTokens(RankModel& model, const TokenBatch& tokens) {
  model.gpt().SetBatch(tokens.inputs.data(), tokens.targets.data());
}

// Largest difference over the largest value, over all gradients.
double RelativeDifference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      difference = std::max<double>(difference, std::abs(a[i][j] - b[i][j]));
      size = std::max<double>(size, std::abs(a[i][j]));
    }
  }
  return difference / size;
}

TEST(GptTest, RefusesABatchOfNothing) {
  const auto gpt = Gpt::Create(Nano(), 0, 16);
  EXPECT_EQ(gpt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(gpt.status().message()), HasSubstr("batch is 0"));
}

TEST(GptTest, RefusesASequenceBeyondTheContext) {
  const auto gpt = Gpt::Create(Nano(), 1, 129);
  EXPECT_EQ(gpt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(gpt.status().message()), HasSubstr("129"));
  EXPECT_THAT(std::string(gpt.status().message()), HasSubstr("context, 128"));
}

TEST(GptTest, FreshWeightsGuessUniformly) {
  RankModel model(Nano(), 4, 64);
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    InitializeRange(model.architecture().parameters[i], 1, 0,
                    model.architecture().parameters[i].count,
                    model.parameters[i].data());
  }
  SetTokens(model, RandomTokens(256, 4, 64, 1));
  EXPECT_NEAR(model.Forward(), std::log(256.0), 0.1);
}

TEST(GptTest, EveryGradientMatchesFiniteDifferences) {
  RankModel model(kTinyConfig, 2, 9);
  model.FillParameters(3);
  SetTokens(model, RandomTokens(kTinyConfig.vocab, 2, 9, 3));
  model.Forward();
  model.Backward();
  // fp32 losses near 2.4 resolve 2.4e-7; over a step of 0.02 that is 1.2e-5.
  constexpr float kStep = 1e-2f;
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterSpec& spec = model.architecture().parameters[i];
    for (int64_t j = 0; j < spec.count; ++j) {
      float& value = model.parameters[i][j];
      const float before = value;
      value = before + kStep;
      const double above = model.Forward();
      value = before - kStep;
      const double below = model.Forward();
      value = before;
      EXPECT_NEAR(model.gradients[i][j], (above - below) / (2 * kStep), 3e-4)
          << spec.name << "[" << j << "]";
    }
  }
}

TEST(GptTest, MicroBatchesAddUpToTheWholeBatch) {
  RankModel whole(Nano(), 4, 32);
  whole.FillParameters(5);
  const TokenBatch tokens = RandomTokens(256, 4, 32, 5);
  SetTokens(whole, tokens);
  const float loss = whole.Forward();
  whole.Backward();

  RankModel half(Nano(), 2, 32);
  half.FillParameters(5);
  half.gpt().set_loss_scale(0.5f);
  float half_losses = 0;
  for (int64_t first : {0, 64}) {
    half.gpt().SetBatch(&tokens.inputs[first], &tokens.targets[first]);
    half_losses += half.Forward();
    half.Backward();
  }
  EXPECT_NEAR(half_losses / 2, loss, 1e-5);
  EXPECT_LT(RelativeDifference(whole.gradients, half.gradients), 1e-5);
}

TEST(GptTest, ModulesTouchOnlyTheParametersTheyUse) {
  RankModel model(kTinyConfig, 2, 9);
  model.FillParameters(6);
  SetTokens(model, RandomTokens(kTinyConfig.vocab, 2, 9, 6));
  model.Forward();
  model.Backward();

  RankModel strict(kTinyConfig, 2, 9);
  SetTokens(strict, RandomTokens(kTinyConfig.vocab, 2, 9, 6));
  const Architecture& architecture = strict.architecture();
  std::vector<const float*> values(architecture.parameters.size(), nullptr);
  std::vector<float*> gradients(architecture.parameters.size(), nullptr);
  const auto lend = [&](int m) {
    std::fill(values.begin(), values.end(), nullptr);
    std::fill(gradients.begin(), gradients.end(), nullptr);
    for (int i : architecture.modules[m].used) {
      values[i] = model.parameters[i].data();
      gradients[i] = strict.gradients[i].data();
    }
  };
  const int num_modules = strict.gpt().num_modules();
  for (int m = 0; m < num_modules; ++m) {
    lend(m);
    strict.gpt().Forward(m, values);
  }
  for (int m = num_modules; m-- > 0;) {
    lend(m);
    strict.gpt().Backward(m, values, gradients);
  }
  EXPECT_EQ(strict.gradients, model.gradients);
}

TEST(GptTest, ATokenIsPredictedFromEarlierTokensOnly) {
  RankModel model(Nano(), 1, 128);
  model.FillParameters(7);
  TokenBatch tokens = RandomTokens(256, 1, 128, 7);
  SetTokens(model, tokens);
  model.Forward();
  const auto logits = model.gpt().logits();
  const std::vector<float> before(logits.begin(), logits.end());
  constexpr int64_t kChanged = 70;
  tokens.inputs[kChanged] ^= 1;
  SetTokens(model, tokens);
  model.Forward();
  for (int64_t t = 0; t < 128; ++t) {
    const bool same =
        std::equal(&before[t * 256], &before[t * 256] + 256, &logits[t * 256]);
    EXPECT_EQ(same, t < kChanged) << "position " << t;
  }
}

// What a rank computes in a step, for comparing bits.
std::vector<std::vector<float>> StepOf(uint64_t seed) {
  RankModel model(Nano(), 3, 128);
  model.FillParameters(seed);
  SetTokens(model, RandomTokens(256, 3, 128, seed));
  for (int repeat = 0; repeat < 3; ++repeat) {
    model.Forward();
    model.Backward();
  }
  std::vector<std::vector<float>> result = model.gradients;
  const auto logits = model.gpt().logits();
  result.emplace_back(logits.begin(), logits.end());
  return result;
}

TEST(GptTest, BitsDoNotDependOnHowManyRanksRunBeside) {
  const std::vector<std::vector<float>> alone = StepOf(8);
  std::vector<std::vector<std::vector<float>>> beside(4);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < beside.size(); ++rank) {
    ranks.emplace_back([&, rank] { beside[rank] = StepOf(8); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : beside) EXPECT_TRUE(result == alone);
}

TEST(GptTest, AStepMakesNoHeapAllocation) {
  RankModel model(Nano(), 2, 128);
  model.FillParameters(10);
  const TokenBatch tokens = RandomTokens(256, 2, 128, 10);
  const auto step = [&] {
    SetTokens(model, tokens);
    model.Forward();
    model.Backward();
  };
  const auto allocations = [] {
    return HeapAllocations() - HeapAllocationsOfProducts();
  };
  step();  // oneDNN generates its code on first use.
  const uint64_t before = allocations();
  step();
  EXPECT_GT(before, 0u);
  EXPECT_EQ(allocations(), before);
}

TEST(GptTest, ShortSequencesLeaveLaterPositionsAlone) {
  RankModel model(kTinyConfig, 1, 4);
  model.FillParameters(9);
  SetTokens(model, RandomTokens(kTinyConfig.vocab, 1, 4, 9));
  model.Forward();
  model.Backward();
  const std::vector<float>& d_wpe = model.gradients[1];
  const int64_t used = 4 * kTinyConfig.channels;
  for (int64_t i = 0; i < static_cast<int64_t>(d_wpe.size()); ++i) {
    EXPECT_EQ(d_wpe[i] != 0, i < used) << "element " << i;
  }
}

}  // namespace
}  // namespace commsched::trainer

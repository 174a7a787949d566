// Dynamic loss scaling, through the C ABI.

#include "engine/update/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

using Steps = std::vector<uint32_t>;

constexpr uint32_t kNever = ~0u;

struct ScaledOutcome {
  std::string error;
  std::vector<float> weights;
  std::vector<commsched_engine_loss_scale_info_t> info;  // By rank.
};

// Runs the steps; in step `overflows` one gradient of rank 1 is infinite.
ScaledOutcome Train(const ToyRun& run, const Steps& steps,
                    uint32_t overflows = kNever) {
  ScaledOutcome outcome;
  outcome.info.resize(static_cast<size_t>(run.ranks),
                      commsched_engine_loss_scale_info_init());
  outcome.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    for (uint32_t step : steps) {
      const auto spoil = [&](uint32_t module) {
        if (step != overflows || rank != 1 || module != 2) return;
        static_cast<float*>(toy.gradients()[4])[3] =
            std::numeric_limits<float>::infinity();
      };
      if (message.empty()) message = toy.Step(step, spoil);
    }
    std::vector<float> weights;
    if (message.empty()) message = toy.Weights(&weights);
    if (rank == 0) outcome.weights = weights;
    if (message.empty() &&
        commsched_engine_get_loss_scale(
            toy.engine(), &outcome.info[static_cast<size_t>(rank)]) !=
            COMMSCHED_OK) {
      message = commsched_engine_last_error();
    }
    return message;
  });
  return outcome;
}

// (ZeRO stage, clip norm, deterministic)
class LossScaleTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, float, bool>> {
 protected:
  static ToyRun Run() {
    ToyRun run;
    run.ranks = 3;
    run.options.zero_stage = std::get<0>(GetParam());
    run.engine.clip_norm = std::get<1>(GetParam());
    run.plan.deterministic = std::get<2>(GetParam()) ? 1 : 0;
    return run;
  }
};

TEST_P(LossScaleTest, PowersOfTwoChangeNoBitOfFp32) {
  ToyRun run = Run();
  run.plan.deterministic = 1;
  const ScaledOutcome plain = Train(run, {0, 1, 2, 3});
  run.engine.loss_scale = 1024;
  run.engine.loss_scale_window = 2;
  const ScaledOutcome scaled = Train(run, {0, 1, 2, 3});
  ASSERT_EQ(scaled.error, "");
  EXPECT_TRUE(SameBits(scaled.weights, plain.weights));
  EXPECT_EQ(scaled.info[0].scale, 4096);
  EXPECT_EQ(plain.info[0].scale, 1);
}

TEST_P(LossScaleTest, AnOverflowOfOneRankSkipsTheStepOnAll) {
  ToyRun run = Run();
  run.engine.loss_scale = 1024;
  const ScaledOutcome outcome = Train(run, {0, 1, 2, 3}, /*overflows=*/1);
  ASSERT_EQ(outcome.error, "");
  for (const commsched_engine_loss_scale_info_t& info : outcome.info) {
    EXPECT_EQ(info.scale, 512);
    EXPECT_EQ(info.skipped_steps, 1u);
    EXPECT_EQ(info.good_steps, 2u);
  }
  // As if the step had never been, for AdamW's corrections, too.
  const ScaledOutcome without = Train(run, {0, 2, 3});
  ASSERT_EQ(outcome.weights.size(), without.weights.size());
  for (size_t i = 0; i < without.weights.size(); ++i) {
    ASSERT_NEAR(outcome.weights[i], without.weights[i], 1e-6) << i;
  }
  if (std::get<2>(GetParam())) {
    EXPECT_TRUE(SameBits(outcome.weights, without.weights));
  }
}

TEST_P(LossScaleTest, GradientsOfFp16FindTheirScale) {
  ToyRun run = Run();
  run.options.parameter_dtype = COMMSCHED_F16;
  run.options.reduce_dtype = COMMSCHED_F16;
  run.engine.loss_scale = 0x1p24f;
  Steps steps;
  for (uint32_t step = 0; step < 12; ++step) steps.push_back(step);
  const ScaledOutcome outcome = Train(run, steps);
  ASSERT_EQ(outcome.error, "");
  // The largest gradient is a little above 0.1, and fp16 ends at 65504.
  const commsched_engine_loss_scale_info_t& info = outcome.info[0];
  EXPECT_GE(info.skipped_steps, 5u);
  EXPECT_LE(info.skipped_steps, 8u);
  EXPECT_EQ(info.scale,
            std::ldexp(1.0, 24 - static_cast<int>(info.skipped_steps)));
  for (float weight : outcome.weights) ASSERT_TRUE(std::isfinite(weight));
}

INSTANTIATE_TEST_SUITE_P(StagesAndNorms, LossScaleTest,
                         Combine(Values(0u, 1u, 2u, 3u), Values(0.0f, 0.5f),
                                 Values(true, false)));

TEST(LossScaleStepTest, AllocatesNothingOnceWarm) {
  ToyRun run;
  run.engine.loss_scale = 1024;
  run.engine.loss_scale_window = 2;
  run.options.parameter_dtype = COMMSCHED_BF16;
  EXPECT_EQ(
      AllocationsOnceWarm(
          run, [](ToyRank& toy, uint32_t step) { return toy.Step(step); }),
      0u);
}

TEST(LossScaleStepTest, TheNormIsThatOfTheUnscaledGradients) {
  ToyRun run;
  run.steps = 1;
  const double expected = RunToy(run).norm;
  run.engine.loss_scale = 4096;
  EXPECT_EQ(RunToy(run).norm, expected);
}

TEST(LossScaleCheckpointTest, TheScaleAndSkippedStepsGoOn) {
  ToyStretch stretch;
  stretch.run.options.parameter_dtype = COMMSCHED_F16;
  stretch.run.engine.loss_scale = 0x1p24f;
  stretch.run.engine.loss_scale_window = 3;
  stretch.end = 16;
  std::vector<std::vector<float>> whole;
  ASSERT_EQ(TrainToy(stretch, &whole), "");
  const TemporaryFolder folder;
  stretch.end = 8;
  stretch.save = folder.path();
  ASSERT_EQ(TrainToy(stretch), "");
  stretch.end = 16;
  stretch.save.clear();
  stretch.load = folder.path();
  std::vector<std::vector<float>> resumed;
  ASSERT_EQ(TrainToy(stretch, &resumed), "");
  EXPECT_TRUE(SameBits(resumed[0], whole[0]));
}

TEST(LossScaleCheckpointTest, TheKeysOfTheEngineAreNotTheCallers) {
  const TemporaryFolder folder;
  const std::string error = OnRanks(ToyRunOf(1, 2), [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    SaverHandle saver;
    if (message.empty()) {
      message = CreateToySaver(toy, folder.path(), "run", &saver);
    }
    const commsched_engine_metadata_t metadata = {"commsched.x", "1"};
    EXPECT_EQ(commsched_engine_saver_save(saver.get(), &metadata, 1),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_THAT(commsched_engine_last_error(), HasSubstr("'commsched.x'"));
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(LossScaleStateTest, HalvesOnOverflowAndDoublesAfterTheWindow) {
  LossScale state;
  state.scale = 8;
  kernels::AdvanceLossScale(state, /*overflowed=*/false, 2);
  EXPECT_EQ(state.scale, 8);
  kernels::AdvanceLossScale(state, true, 2);
  EXPECT_EQ(state.scale, 4);
  EXPECT_EQ(state.good_steps, 0);
  kernels::AdvanceLossScale(state, false, 2);
  kernels::AdvanceLossScale(state, false, 2);
  EXPECT_EQ(state.scale, 8);
  EXPECT_EQ(state.skipped_steps, 1);
}

TEST(LossScaleStateTest, StaysWithinItsLimits) {
  LossScale state;
  kernels::AdvanceLossScale(state, true, 1);
  EXPECT_EQ(state.scale, kMinLossScale);
  for (int i = 0; i < 40; ++i) kernels::AdvanceLossScale(state, false, 1);
  EXPECT_EQ(state.scale, kMaxLossScale);
}

TEST(LossScaleStateTest, MetadataThatIsNoStateChangesNothing) {
  for (const char* text :
       {"", "8", "8 1", "8 1 x", "8 1 2 3", "0 1 2", "-8 1 2", "8  1 2",
        "99999999999 0 0", "8 2 2", "8 0 18446744073709551616"}) {
    LossScale state;
    state.scale = 4;
    const Status status =
        LoadLossScale({{"commsched.loss_scale", text}}, 3, true, &state);
    EXPECT_EQ(status.code(), COMMSCHED_INVALID_ARGUMENT) << text;
    EXPECT_EQ(state.scale, 4);
    EXPECT_EQ(state.skipped_steps, 0);
  }
}

TEST(LossScaleStateTest, NoScaleIsTakenFromARunThatHadNone) {
  LossScale unscaled;
  unscaled.skipped_steps = 2;
  std::map<std::string, std::string> metadata;
  SaveLossScale(unscaled, /*scales=*/false, &metadata);
  LossScale state;
  state.scale = 65536;
  ASSERT_TRUE(LoadLossScale(metadata, 3, /*scales=*/true, &state).ok());
  EXPECT_EQ(state.scale, 65536);
  EXPECT_EQ(state.skipped_steps, 2);
}

TEST(LossScaleStateTest, SkippedStepsThatAreNoneChangeNothing) {
  for (const char* text : {"", "x", "-1", "4", "1 0", "99999999999999999999"}) {
    LossScale state;
    const Status status =
        LoadLossScale({{"commsched.skipped_steps", text}}, 3, false, &state);
    EXPECT_EQ(status.code(), COMMSCHED_INVALID_ARGUMENT) << text;
    EXPECT_EQ(state.skipped_steps, 0);
  }
}

TEST(LossScaleStateTest, WithoutAScaleOnlySkippedStepsAreTaken) {
  LossScale state;
  ASSERT_TRUE(
      LoadLossScale({{"commsched.loss_scale", "8 1 2"}}, 3, false, &state)
          .ok());
  EXPECT_EQ(state.scale, 1);
  EXPECT_EQ(state.skipped_steps, 2);
}

}  // namespace
}  // namespace commsched::engine

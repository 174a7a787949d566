// SGD through the engine: against a plain loop, and its bits and checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "test/engine/plain_toy.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

ToyRun SgdRun(float momentum, bool nesterov) {
  ToyRun run;
  run.optimizer = commsched_sgd(momentum, nesterov ? 1 : 0);
  return run;
}

// (ZeRO stage, momentum, Nesterov's)
class SgdTrainingTest
    : public ::testing::TestWithParam<std::tuple<int, float, bool>> {
 protected:
  ToyRun Run() const {
    ToyRun run = SgdRun(std::get<1>(GetParam()), std::get<2>(GetParam()));
    run.options.zero_stage = static_cast<uint32_t>(std::get<0>(GetParam()));
    return run;
  }
};

TEST_P(SgdTrainingTest, AgreesWithAPlainLoopOnEveryRank) {
  for (float clip : {0.0f, 0.5f}) {
    ToyRun run = Run();
    run.ranks = 3;
    run.engine.clip_norm = clip;
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    const std::vector<float> expected = ReferenceWeights(run);
    for (const std::vector<float>& weights : result.weights) {
      ASSERT_EQ(weights.size(), expected.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], expected[i], 1e-5) << i;
      }
    }
  }
}

TEST_P(SgdTrainingTest, HasTheBitsOfOneBucketInStage0) {
  ToyRun run = Run();
  run.ranks = 3;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  run.options.zero_stage = 0;
  run.options.bucket_bytes = 1 << 20;
  const ToyResult first = RunToy(run);
  EXPECT_TRUE(SameBits(result.weights[2], first.weights[0]));
}

TEST_P(SgdTrainingTest, GoesOnFromACheckpointToTheBit) {
  ToyStretch stretch;
  stretch.run = Run();
  stretch.end = 4;
  std::vector<std::vector<float>> whole;
  ASSERT_EQ(TrainToy(stretch, &whole), "");
  const TemporaryFolder folder;
  stretch.end = 2;
  stretch.save = folder.path();
  ASSERT_EQ(TrainToy(stretch), "");
  stretch.end = 4;
  stretch.save.clear();
  stretch.load = folder.path();
  std::vector<std::vector<float>> resumed;
  ASSERT_EQ(TrainToy(stretch, &resumed), "");
  EXPECT_TRUE(SameBits(resumed[0], whole[0]));
}

INSTANTIATE_TEST_SUITE_P(StagesAndMomentum, SgdTrainingTest,
                         Combine(Values(0, 1, 2, 3), Values(0.9f),
                                 Values(false, true)));
INSTANTIATE_TEST_SUITE_P(StagesWithoutMomentum, SgdTrainingTest,
                         Combine(Values(0, 1, 2, 3), Values(0.0f),
                                 Values(false)));

TEST(SgdTest, KeepsOneValuePerWeightWithMomentumAndNoneWithout) {
  const ToyResult adamw = RunToy(ToyRun());
  const ToyResult momentum = RunToy(SgdRun(0.9f, false));
  const ToyResult plain = RunToy(SgdRun(0, false));
  EXPECT_GT(adamw.info.optimizer_bytes, 0u);
  EXPECT_EQ(momentum.info.optimizer_bytes, adamw.info.optimizer_bytes / 2);
  EXPECT_EQ(plain.info.optimizer_bytes, 0u);
}

TEST(SgdTest, RefusesTheCheckpointOfAnotherOptimizer) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRun()), "");
  ToyStretch stretch;
  stretch.run = SgdRun(0.9f, false);
  stretch.load = folder.path();
  stretch.end = 4;
  EXPECT_THAT(TrainToy(stretch),
              HasSubstr("the checkpoint has adamw.m, which the engine's sgd "
                        "does not keep"));
  stretch.run = ToyRun();
  const TemporaryFolder other;
  ASSERT_EQ(SaveToy(other.path(), SgdRun(0.9f, false)), "");
  stretch.load = other.path();
  EXPECT_THAT(TrainToy(stretch), HasSubstr("the checkpoint has no adamw.m"));
}

}  // namespace
}  // namespace commsched::engine

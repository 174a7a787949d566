// Parameters and gradients of 16 bits, through the C ABI.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "test/engine/messages.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::Values;

// One choice of types, and of how micro-batches add up.
struct Choice {
  const char* name;
  uint32_t parameters, reduced;
  uint32_t micro_batches;
  uint64_t accumulate_bytes = 0;
};

constexpr uint32_t kF32 = COMMSCHED_F32;
constexpr uint32_t kF16 = COMMSCHED_F16;
constexpr uint32_t kBF16 = COMMSCHED_BF16;

constexpr Choice kChoices[] = {
    {"Bf16", kBF16, kBF16, 1},
    {"F16", kF16, kF16, 1},
    {"ReducedInF32", kBF16, kF32, 1},
    {"ReducedInBf16", kF32, kBF16, 1},
    {"Summed", kBF16, kF32, 3},
    {"SummedReducedInBf16", kBF16, kBF16, 3},
    {"AtOnce", kBF16, kBF16, 3, 1},
    {"ReducedInF32AtOnce", kBF16, kF32, 3, 1},
    {"ReducedInF16OfF32AtOnce", kF32, kF16, 3, 1},
};

class PrecisionTest : public ::testing::TestWithParam<Choice> {
 protected:
  static ToyRun Run() {
    const Choice& choice = GetParam();
    ToyRun run;
    run.ranks = 3;
    run.options.parameter_dtype = choice.parameters;
    run.options.reduce_dtype = choice.reduced;
    run.options.micro_batches = choice.micro_batches;
    run.options.accumulate_bytes = choice.accumulate_bytes;
    return run;
  }
};

// Values that lie between two of 16 bits may be rounded to either.
TEST_P(PrecisionTest, AgreesWithAPlainLoopThatRoundsAlike) {
  const double tolerance = GetParam().parameters == kBF16 ? 0x1p-8 : 0x1p-11;
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyRun run = Run();
    run.options.zero_stage = stage;
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    const std::vector<float> expected = ReferenceWeights(run);
    size_t equal = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result.weights[0][i], expected[i],
                  1e-4 + tolerance * std::fabs(expected[i]))
          << "stage " << stage << ", element " << i;
      equal += result.weights[0][i] == expected[i] ? 1 : 0;
    }
    if (GetParam().parameters != kF32) {
      EXPECT_GT(equal, expected.size() * 9 / 10);
    }
  }
}

// I4.
TEST_P(PrecisionTest, HasTheSameBitsForAnyStageBucketAndCap) {
  ToyRun run = Run();
  run.options.zero_stage = 0;
  run.options.bucket_bytes = 1 << 20;
  const ToyResult first = RunToy(run);
  ASSERT_EQ(first.error, "");
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    for (uint64_t bucket_bytes : {1024u, 16384u, 1u << 20}) {
      for (uint32_t launches : {0u, 1u}) {
        run.options.zero_stage = stage;
        run.options.bucket_bytes = bucket_bytes;
        run.plan.max_launches_in_flight = launches;
        const ToyResult result = RunToy(run);
        ASSERT_EQ(result.error, "");
        for (const std::vector<float>& weights : result.weights) {
          ASSERT_TRUE(SameBits(weights, first.weights[0]))
              << "stage " << stage << ", bucket " << bucket_bytes
              << ", launches " << launches;
        }
        ASSERT_EQ(result.norm, first.norm);
      }
    }
  }
}

// Masters are saved, so that nothing is lost, and another stage may go on.
TEST_P(PrecisionTest, GoesOnFromACheckpointToTheBitInAnyStage) {
  ToyStretch stretch;
  stretch.run = Run();
  stretch.run.options.zero_stage = 1;
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
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    stretch.run.options.zero_stage = stage;
    std::vector<std::vector<float>> resumed;
    ASSERT_EQ(TrainToy(stretch, &resumed), "");
    for (const std::vector<float>& weights : resumed) {
      EXPECT_TRUE(SameBits(weights, whole[0])) << "stage " << stage;
    }
  }
}

TEST_P(PrecisionTest, AStepAllocatesNothingOnceWarm) {
  EXPECT_EQ(
      AllocationsOnceWarm(
          Run(), [](ToyRank& toy, uint32_t step) { return toy.Step(step); }),
      0u);
}

INSTANTIATE_TEST_SUITE_P(Choices, PrecisionTest, ::testing::ValuesIn(kChoices),
                         [](const auto& info) { return info.param.name; });

// (ZeRO stage)
class PrecisionMemoryTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(PrecisionMemoryTest, SixteenBitsTakeHalfAndMastersAShard) {
  ToyRun run;
  run.ranks = 4;
  run.options.zero_stage = GetParam();
  const commsched_engine_info_t fp32 = RunToy(run).info;
  run.options.parameter_dtype = COMMSCHED_BF16;
  run.options.reduce_dtype = COMMSCHED_BF16;
  const commsched_engine_info_t bf16 = RunToy(run).info;
  EXPECT_EQ(bf16.num_buckets, fp32.num_buckets);
  EXPECT_EQ(bf16.parameter_bytes, fp32.parameter_bytes / 2);
  EXPECT_EQ(bf16.gradient_bytes, fp32.gradient_bytes / 2);
  EXPECT_EQ(bf16.arena_bytes, fp32.arena_bytes / 2);
  // Two moments, and the masters beside them.
  EXPECT_EQ(bf16.optimizer_bytes, fp32.optimizer_bytes / 2 * 3);
}

INSTANTIATE_TEST_SUITE_P(Stages, PrecisionMemoryTest, Values(0u, 1u, 2u, 3u));

TEST(PrecisionTrafficTest, ReduceDTypeHalvesWhatReductionsSend) {
  for (uint32_t stage : {0u, 2u}) {
    ToyRun run;
    run.options.zero_stage = stage;
    const auto reduced_bytes = [&run] {
      const Planned planned = PlanOf(run);
      EXPECT_EQ(planned.error, "");
      uint64_t bytes = 0;
      for (const nlohmann::json& launch : planned.plan["launches"]) {
        const std::string member = launch["members"][0];
        if (member.rfind("reduce_scatter.", 0) != 0 &&
            member.rfind("all_reduce.", 0) != 0) {
          continue;
        }
        bytes += launch["bytes"].get<uint64_t>();
      }
      return bytes;
    };
    const uint64_t fp32 = reduced_bytes();
    run.options.reduce_dtype = COMMSCHED_BF16;
    ASSERT_GT(fp32, 0u);
    EXPECT_EQ(reduced_bytes(), fp32 / 2) << "stage " << stage;
  }
}

// What a model reads is the master, rounded.
TEST(PrecisionValuesTest, SetRoundsAndGetGivesWhatTheModelReads) {
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyRun run;
    run.steps = 0;
    run.engine.clip_norm = 0;
    run.options.zero_stage = stage;
    run.options.parameter_dtype = COMMSCHED_BF16;
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    for (const std::vector<float>& weights : result.weights) {
      EXPECT_TRUE(SameBits(weights, ReferenceWeights(run))) << stage;
    }
  }
}

// By parameter, of a checkpoint.
std::vector<std::vector<float>> ValuesOf(const std::string& folder) {
  std::unique_ptr<Checkpoint> checkpoint;
  const Status status = Checkpoint::Open(folder, nullptr, &checkpoint);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::vector<float>> values;
  for (const ToyParameter& parameter : ToyParameters()) {
    values.emplace_back(parameter.count());
    if (!status.ok()) continue;
    EXPECT_TRUE(
        checkpoint
            ->Read({static_cast<size_t>(checkpoint->Find(parameter.name)),
                    kValueKind, 0, parameter.count()},
                   values.back().data())
            .ok());
  }
  return values;
}

// Every element of every parameter, from the rank that keeps its master.
std::string ReadMasters(ToyRank& toy, std::vector<std::vector<float>>* out) {
  RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(toy.engine()));
  for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
    uint64_t offset = 0;
    uint64_t count = 0;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_master_range(toy.engine(), p, &offset, &count));
    if (count == 0) continue;
    EXPECT_EQ(commsched_engine_get_master_range(toy.engine(), p,
                                                (*out)[p].data(), count + 1),
              COMMSCHED_INVALID_ARGUMENT);
    RETURN_MESSAGE_IF_ERROR(commsched_engine_get_master_range(
        toy.engine(), p, (*out)[p].data() + offset, count));
  }
  return "";
}

TEST(MastersTest, AreWhatACheckpointHasInEveryStageAndPlace) {
  for (const bool offloads : {false, true}) {
    for (uint32_t stage : {0u, 1u, 2u, 3u}) {
      const TemporaryFolder folder;
      ToyRun run = ToyRunOf(3, stage);
      run.options.parameter_dtype = COMMSCHED_BF16;
      if (offloads) run.pools = std::make_shared<TestPools>();
      std::vector<std::vector<float>> masters;
      for (const ToyParameter& parameter : ToyParameters()) {
        masters.emplace_back(parameter.count(), -1.0f);
      }
      ASSERT_EQ(OnRanks(run,
                        [&](ToyRank& toy, int32_t) {
                          RETURN_MESSAGE_IF_ERROR(toy.Build());
                          RETURN_MESSAGE_IF_ERROR(toy.Step(0));
                          SaverHandle saver;
                          RETURN_MESSAGE_IF_ERROR(
                              CreateToySaver(toy, folder.path(), "r", &saver));
                          RETURN_MESSAGE_IF_ERROR(commsched_engine_saver_save(
                              saver.get(), nullptr, 0));
                          RETURN_MESSAGE_IF_ERROR(
                              commsched_engine_saver_wait(saver.get()));
                          return ReadMasters(toy, &masters);
                        }),
                "");
      EXPECT_EQ(masters, ValuesOf(folder.path())) << "stage " << stage;
    }
  }
}

}  // namespace
}  // namespace commsched::engine

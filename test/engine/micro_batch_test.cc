// Several backwards per step: gradients that accumulate whole, and gradients
// that are reduced in each micro-batch, within a budget.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/plain_toy.h"
#include "test/engine/ranks_in_name.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::Values;

constexpr uint64_t kNoBucketAccumulates = 1;

// Buckets, padded to 4 KiB: 0 of embed and head, 8 KiB; 1 and 2 of block0, 16
// and 4 KiB; 3 of block1, 12 KiB; 4 of block1 and head, 4 KiB.
ToyRun WindowRun(uint32_t zero_stage, uint64_t accumulate_bytes) {
  ToyRun run;
  run.ranks = 4;
  run.steps = 2;
  run.options.zero_stage = zero_stage;
  run.options.micro_batches = 4;
  run.options.bucket_bytes = 4096;
  run.options.accumulate_bytes = accumulate_bytes;
  return run;
}

// So that each collective is a launch, and none goes out later for another's
// memory.
ToyRun UnmergedWindowRun(uint32_t zero_stage, uint64_t accumulate_bytes) {
  ToyRun run = WindowRun(zero_stage, accumulate_bytes);
  run.plan.coalesce_bytes = 0;
  if (zero_stage == 3) run.options.max_live_bytes = UINT64_MAX;
  return run;
}

// Room for some of the five buckets: 16 of 44 KiB.
constexpr uint64_t kSomeBuckets = 16384;
constexpr uint64_t kAllBuckets = 45056;

// By bucket: the ops after which its reductions go out, by micro-batch.
std::map<int, std::vector<std::string>> ReductionsOf(
    const nlohmann::json& plan) {
  std::map<int, std::vector<std::string>> reductions;
  for (const auto& launch : plan["launches"]) {
    for (const std::string member : launch["members"]) {
      for (const std::string prefix : {"reduce_scatter.", "all_reduce."}) {
        if (member.rfind(prefix, 0) != 0) continue;
        reductions[std::stoi(member.substr(prefix.size()))].push_back(
            launch["due_after"]);
      }
    }
  }
  return reductions;
}

class MicroBatchStageTest : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Stages, MicroBatchStageTest, Values(0, 1, 2, 3));

TEST_P(MicroBatchStageTest, EachBucketIsReducedOnceUnderTheLastBackward) {
  const Planned planned = PlanOf(UnmergedWindowRun(GetParam(), 0));
  ASSERT_EQ(planned.error, "");
  const auto reductions = ReductionsOf(planned.plan);
  EXPECT_THAT(reductions, SizeIs(5));
  for (const auto& [bucket, after] : reductions) {
    EXPECT_THAT(after, ::testing::ElementsAre(HasSubstr("backward[3].")));
  }
  // While three more modules compute.
  EXPECT_THAT(reductions.at(3)[0], HasSubstr("backward[3].block1"));
}

TEST_P(MicroBatchStageTest, WithoutRoomEachBucketIsReducedUnderEachBackward) {
  const Planned planned =
      PlanOf(UnmergedWindowRun(GetParam(), kNoBucketAccumulates));
  ASSERT_EQ(planned.error, "");
  const auto reductions = ReductionsOf(planned.plan);
  EXPECT_THAT(reductions, SizeIs(5));
  for (const auto& [bucket, after] : reductions) {
    ASSERT_THAT(after, SizeIs(4));
    for (size_t mb = 0; mb < 4; ++mb) {
      EXPECT_THAT(after[mb],
                  HasSubstr("backward[" + std::to_string(mb) + "]."));
    }
  }
  EXPECT_EQ(planned.info.accumulated_bytes, 0u);
}

TEST_P(MicroBatchStageTest, TheEngineSaysWhichBucketsAccumulate) {
  const ToyRun run = WindowRun(GetParam(), kSomeBuckets);
  const auto reductions = ReductionsOf(PlanOf(run).plan);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (rank != 0 || !message.empty()) return message;
    uint64_t accumulated = 0;
    for (uint32_t b = 0; b < 5; ++b) {
      commsched_engine_bucket_info_t info = commsched_engine_bucket_info_init();
      EXPECT_EQ(commsched_engine_get_bucket_info(toy.engine(), b, &info),
                COMMSCHED_OK);
      EXPECT_THAT(reductions.at(static_cast<int>(b)),
                  SizeIs(info.num_reductions));
      if (info.num_reductions == 1) accumulated += info.count * sizeof(float);
    }
    commsched_engine_info_t info = commsched_engine_info_init();
    EXPECT_EQ(commsched_engine_get_info(toy.engine(), &info), COMMSCHED_OK);
    EXPECT_EQ(info.accumulated_bytes, accumulated);
    EXPECT_GT(accumulated, 0u);
    EXPECT_LE(accumulated, kSomeBuckets);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST_P(MicroBatchStageTest, OneMicroBatchHasNothingToAccumulate) {
  ToyRun run = WindowRun(GetParam(), 0);
  run.options.micro_batches = 1;
  const Planned plain = PlanOf(run);
  run.options.accumulate_bytes = kNoBucketAccumulates;
  const Planned limited = PlanOf(run);
  EXPECT_EQ(limited.plan["fingerprint"], plain.plan["fingerprint"]);
  EXPECT_EQ(limited.info.accumulated_bytes, 0u);
}

TEST_P(MicroBatchStageTest, MoreThanAllIsTheSameAsNoLimit) {
  const Planned all = PlanOf(WindowRun(GetParam(), kAllBuckets));
  const Planned unlimited = PlanOf(WindowRun(GetParam(), 0));
  EXPECT_EQ(all.plan["fingerprint"], unlimited.plan["fingerprint"]);
  EXPECT_EQ(all.info.accumulated_bytes, kAllBuckets);
}

TEST_P(MicroBatchStageTest, AStepAllocatesNothingOnceWarm) {
  ToyRun run = WindowRun(GetParam(), kSomeBuckets);
  run.options.micro_batches = 3;
  const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

// (ranks, stage, budget, clip)
class MicroBatchTrainingTest : public ::testing::TestWithParam<
                                   std::tuple<int, uint32_t, uint64_t, float>> {
};

TEST_P(MicroBatchTrainingTest, AgreesWithAPlainLoop) {
  ToyRun run = WindowRun(std::get<1>(GetParam()), std::get<2>(GetParam()));
  run.ranks = std::get<0>(GetParam());
  run.engine.clip_norm = std::get<3>(GetParam());
  run.plan.deterministic = 0;
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

INSTANTIATE_TEST_SUITE_P(RanksStagesAndBudgets, MicroBatchTrainingTest,
                         Combine(Values(1, 3), Values(0, 1, 2, 3),
                                 Values(kNoBucketAccumulates, kSomeBuckets),
                                 Values(0.0f, 0.5f)),
                         RanksInName());

// The mean gradients of a step, in place of the weights.
std::vector<float> MeanGradients(ToyRun run) {
  commsched_engine_kernels_t kernels = commsched_engine_kernels_init();
  kernels.adamw = [](void*, commsched_stream_t,
                     const commsched_adamw_args_t* args) {
    std::memcpy(args->master, args->gradient, args->count * sizeof(float));
    return commsched_status_t{COMMSCHED_OK};
  };
  run.engine.kernels = &kernels;
  run.engine.clip_norm = 0;
  run.steps = 1;
  const ToyResult result = RunToy(run);
  EXPECT_EQ(result.error, "");
  return result.weights[0];
}

TEST_P(MicroBatchStageTest, OneReductionGivesWhatOnePerMicroBatchGives) {
  const std::vector<float> once = MeanGradients(WindowRun(GetParam(), 0));
  const std::vector<float> each =
      MeanGradients(WindowRun(GetParam(), kNoBucketAccumulates));
  ASSERT_EQ(once.size(), each.size());
  float largest = 0;
  for (float value : each) largest = std::max(largest, std::fabs(value));
  ASSERT_GT(largest, 0.1f);
  EXPECT_FALSE(SameBits(once, each));  // Added in another order.
  for (size_t i = 0; i < once.size(); ++i) {
    ASSERT_NEAR(once[i], each[i], 1e-6 * largest) << i;
  }
}

// Every plan of the grid must give the bits of ZeRO-0 in the same buckets.
void ExpectSameBits(ToyRun run, const std::vector<uint64_t>& bucket_bytes) {
  run.options.zero_stage = 0;
  run.options.bucket_bytes = bucket_bytes.front();
  const ToyResult first = RunToy(run);
  ASSERT_EQ(first.error, "");
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    for (uint64_t bytes : bucket_bytes) {
      for (uint32_t launches : {0u, 1u}) {
        for (uint32_t schedule : {COMMSCHED_OVERLAP, COMMSCHED_SERIAL}) {
          run.options.zero_stage = stage;
          run.options.bucket_bytes = bytes;
          run.options.max_live_bytes =
              stage == 3 && launches == 1 && bytes < 16384 ? 90000 : 0;
          run.plan.max_launches_in_flight = launches;
          run.plan.schedule = schedule;
          const ToyResult result = RunToy(run);
          ASSERT_EQ(result.error, "");
          for (const std::vector<float>& weights : result.weights) {
            ASSERT_TRUE(SameBits(weights, first.weights[0]))
                << "stage " << stage << ", bucket " << bytes << ", launches "
                << launches << ", schedule " << schedule;
          }
          ASSERT_EQ(result.norm, first.norm);
        }
      }
    }
  }
}

TEST(MicroBatchBitsTest, AreThoseOfAnyStageBucketCapAndLimitIfNoneAccumulates) {
  ToyRun run = WindowRun(0, kNoBucketAccumulates);
  run.options.micro_batches = 3;
  ExpectSameBits(run, {1 << 20, 1024, 4096, 16384});
}

TEST(MicroBatchBitsTest, AreThoseOfAnyStageCapAndLimitForOneChoice) {
  ToyRun run = WindowRun(0, kSomeBuckets);
  run.options.micro_batches = 3;
  ExpectSameBits(run, {4096});
}

TEST(MicroBatchBitsTest, SurviveMergedAndSplitCollectives) {
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyRun run = WindowRun(stage, kSomeBuckets);
    const ToyResult plain = RunToy(run);
    ASSERT_EQ(plain.error, "");
    run.plan.coalesce_bytes = 20000;
    EXPECT_TRUE(SameBits(RunToy(run).weights[0], plain.weights[0])) << stage;
    run.plan.coalesce_bytes = 0;
    run.plan.partition_bytes = 2048;
    run.plan.priority = COMMSCHED_PRIORITY_ON;
    EXPECT_TRUE(SameBits(RunToy(run).weights[0], plain.weights[0])) << stage;
  }
}

TEST(MicroBatchBitsTest, SurviveAParameterWithoutGradients) {
  ToyRun run = WindowRun(0, kNoBucketAccumulates);
  run.unused_parameter = 4;  // block1.weight, alone in its bucket
  const ToyResult whole = RunToy(run);
  ASSERT_EQ(whole.error, "");
  run.options.zero_stage = 3;
  run.options.max_live_bytes = 60000;
  const ToyResult sharded = RunToy(run);
  ASSERT_EQ(sharded.error, "");
  EXPECT_TRUE(SameBits(sharded.weights[0], whole.weights[0]));
}

TEST(MicroBatchMemoryTest, BucketsThatAccumulateKeepWithinTheBudget) {
  for (uint32_t stage : {2u, 3u}) {
    for (uint64_t budget = 1; budget < 50000; budget += 3000) {
      const Planned planned = PlanOf(WindowRun(stage, budget));
      ASSERT_EQ(planned.error, "");
      uint64_t held = 0;
      for (const auto& place : planned.plan["arena"]) {
        const std::string name = place["name"];
        // "gradients.3" is there for the window, "gradients.3.1" is not.
        if (name.rfind("gradients.", 0) != 0) continue;
        if (std::count(name.begin(), name.end(), '.') == 1) {
          held += place["bytes"].get<uint64_t>();
        }
      }
      EXPECT_EQ(held, planned.info.accumulated_bytes);
      EXPECT_LE(held, budget);
    }
  }
}

TEST(MicroBatchMemoryTest, ReducingAtOnceTakesAnotherShardAndASmallerArena) {
  const Planned whole = PlanOf(WindowRun(2, 0));
  const Planned sharded = PlanOf(WindowRun(2, kNoBucketAccumulates));
  EXPECT_EQ(whole.info.arena_bytes, kAllBuckets);
  EXPECT_LE(sharded.info.arena_bytes, kAllBuckets / 4 * 3);
  EXPECT_EQ(whole.info.gradient_bytes, kAllBuckets / 4 + kAllBuckets);
  EXPECT_EQ(sharded.info.gradient_bytes,
            2 * kAllBuckets / 4 + sharded.info.arena_bytes);
}

// Too little for all gradients beside the parameters of the largest module.
constexpr uint64_t kLiveBytes = 57344;

TEST(MicroBatchMemoryTest, ALimitBelowWhatAccumulatesNamesTheBudget) {
  ToyRun run = WindowRun(3, 0);
  run.options.max_live_bytes = kLiveBytes;
  EXPECT_THAT(
      PlanOf(run).error,
      AllOf(HasSubstr("max_live_bytes 57344 is too small"),
            HasSubstr("45056 of gradient buckets, of which 45056 accumulate "
                      "over 4 micro-batches; accumulate_bytes limits that")));
}

TEST(MicroBatchMemoryTest, GradientsOfMicroBatchesLieWithinTheLimit) {
  ToyRun run = WindowRun(3, kNoBucketAccumulates);
  run.options.max_live_bytes = kLiveBytes;
  EXPECT_LE(BytesSeenInBackwards(run), kLiveBytes);
}

// 2 backwards: nothing but the last is added after the first.
TEST(MicroBatchStepTest, TwoMicroBatchesAreEnough) {
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyRun run = WindowRun(stage, kNoBucketAccumulates);
    run.options.micro_batches = 2;
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    const std::vector<float> expected = ReferenceWeights(run);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result.weights[0][i], expected[i], 1e-5) << i;
    }
  }
}

TEST(MicroBatchStepTest, ShortLivedGradientsHaveAnAddressWithinBackwards) {
  ToyRun run = WindowRun(2, kNoBucketAccumulates);
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    std::vector<const void*> within;
    const auto look = [&](uint32_t module) {
      if (module == 2) within.push_back(toy.gradients()[4]);
    };
    if (message.empty()) message = toy.Step(0, look);
    EXPECT_THAT(within, AllOf(SizeIs(4), Each(::testing::NotNull())));
    const void* values = nullptr;
    void* gradient = nullptr;
    EXPECT_EQ(
        commsched_engine_parameter_address(toy.engine(), 4, &values, &gradient),
        COMMSCHED_OK);
    EXPECT_NE(values, nullptr);
    EXPECT_EQ(gradient, nullptr);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(MicroBatchStepTest, TheCallersKernelAdds) {
  std::atomic<int> added{0};
  commsched_engine_kernels_t kernels = commsched_engine_kernels_init();
  kernels.user = &added;
  kernels.add = [](void* user, commsched_stream_t, void*, commsched_dtype_t,
                   const void*, commsched_dtype_t, uint64_t) {
    ++*static_cast<std::atomic<int>*>(user);
    return commsched_status_t{COMMSCHED_OK};
  };
  ToyRun run = WindowRun(2, kNoBucketAccumulates);
  run.engine.kernels = &kernels;
  EXPECT_EQ(RunToy(run).error, "");
  // Ranks x steps x buckets x micro-batches after the first.
  EXPECT_EQ(added, 4 * 2 * 5 * 3);
}

TEST(MicroBatchInfoTest, ABucketThatIsNotThereIsNamed) {
  ToyRun run = WindowRun(2, 0);
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    commsched_engine_bucket_info_t info = commsched_engine_bucket_info_init();
    const std::string message = toy.Build();
    EXPECT_EQ(commsched_engine_get_bucket_info(toy.engine(), 99, &info),
              COMMSCHED_NOT_FOUND);
    EXPECT_THAT(commsched_engine_last_error(), HasSubstr("bucket 99; there"));
    EXPECT_EQ(commsched_engine_get_bucket_info(toy.engine(), 0, nullptr),
              COMMSCHED_INVALID_ARGUMENT);
    info.struct_size = 0;
    EXPECT_EQ(commsched_engine_get_bucket_info(toy.engine(), 0, &info),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_EQ(info.count, 0u);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(MicroBatchInfoTest, GathersOfABucketAreCounted) {
  ToyRun run = WindowRun(3, kNoBucketAccumulates);
  run.options.max_live_bytes = 57344;
  const Planned plan = PlanOf(run);
  uint64_t planned = 0;
  for (const auto& launch : plan.plan["launches"]) {
    for (const std::string member : launch["members"]) {
      planned += member.rfind("all_gather.", 0) == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(planned, 5u);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    const std::string message = toy.Build();
    uint64_t gathers = 0;
    for (uint64_t b = 0; b < 5; ++b) {
      commsched_engine_bucket_info_t info = commsched_engine_bucket_info_init();
      EXPECT_EQ(commsched_engine_get_bucket_info(toy.engine(), b, &info),
                COMMSCHED_OK);
      EXPECT_GT(info.count, 0u);
      gathers += info.num_gathers;
    }
    EXPECT_EQ(gathers, planned);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(MicroBatchFailureTest, AnAbortBetweenMicroBatchesReachesAll) {
  const ToyRun run = WindowRun(2, kNoBucketAccumulates);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (!message.empty()) return message;
    if (rank == 1) {
      commsched_engine_abort(toy.engine(), "disk full");
      return message;
    }
    message = toy.Step(0);
    EXPECT_THAT(message, HasSubstr("disk full"));
    return std::string();
  });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

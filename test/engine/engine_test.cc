// What training through the engine computes.

#include "commsched/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "test/engine/pass_calls.h"
#include "test/engine/plain_toy.h"
#include "test/engine/ranks_in_name.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"
#include "test/support/await.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

double LargestDifference(const std::vector<float>& a,
                         const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    largest = std::max(largest, std::fabs(double{a[i]} - b[i]));
  }
  return largest;
}

// (ranks, ZeRO stage, clip norm)
class EngineTrainingTest
    : public ::testing::TestWithParam<std::tuple<int, int, float>> {};

TEST_P(EngineTrainingTest, AgreesWithAPlainLoopOnEveryRank) {
  ToyRun run;
  run.ranks = std::get<0>(GetParam());
  run.options.zero_stage = static_cast<uint32_t>(std::get<1>(GetParam()));
  run.engine.clip_norm = std::get<2>(GetParam());
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  const std::vector<float> expected = ReferenceWeights(run);
  for (const std::vector<float>& weights : result.weights) {
    EXPECT_LT(LargestDifference(weights, expected), 1e-5);
  }
}

TEST_P(EngineTrainingTest, AgreesWithAPlainLoopOverMicroBatches) {
  ToyRun run;
  run.ranks = std::get<0>(GetParam());
  run.options.zero_stage = static_cast<uint32_t>(std::get<1>(GetParam()));
  run.engine.clip_norm = std::get<2>(GetParam());
  run.options.micro_batches = 3;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  EXPECT_LT(LargestDifference(result.weights[0], ReferenceWeights(run)), 1e-5);
}

TEST_P(EngineTrainingTest, AgreesWithAPlainLoopWhereBitsMayDiffer) {
  ToyRun run;
  run.ranks = std::get<0>(GetParam());
  run.options.zero_stage = static_cast<uint32_t>(std::get<1>(GetParam()));
  run.engine.clip_norm = std::get<2>(GetParam());
  run.plan.deterministic = 0;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  for (const std::vector<float>& weights : result.weights) {
    EXPECT_LT(LargestDifference(weights, ReferenceWeights(run)), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(RanksStagesAndClipping, EngineTrainingTest,
                         Combine(Values(1, 2, 3, 4), Values(0, 1, 2, 3),
                                 Values(0.0f, 0.5f)),
                         RanksInName());

// I4.
class EngineBitsTest : public ::testing::TestWithParam<int> {
 protected:
  // Every plan of the grid must give the bits of ZeRO-0 in one bucket.
  void ExpectSameBits(ToyRun run) {
    run.ranks = GetParam();
    run.options.zero_stage = 0;
    run.options.bucket_bytes = 1 << 20;
    const ToyResult first = RunToy(run);
    ASSERT_EQ(first.error, "");
    for (uint32_t stage : {0u, 1u, 2u, 3u}) {
      for (uint64_t bucket_bytes : {1024u, 16384u, 1u << 20}) {
        for (uint32_t launches : {0u, 1u, 2u}) {
          for (uint32_t schedule : {COMMSCHED_OVERLAP, COMMSCHED_SERIAL}) {
            run.options.zero_stage = stage;
            run.options.bucket_bytes = bucket_bytes;
            run.plan.max_launches_in_flight = launches;
            run.plan.schedule = schedule;
            const ToyResult result = RunToy(run);
            ASSERT_EQ(result.error, "");
            for (const std::vector<float>& weights : result.weights) {
              ASSERT_TRUE(SameBits(weights, first.weights[0]))
                  << "stage " << stage << ", bucket " << bucket_bytes
                  << ", launches " << launches << ", schedule " << schedule;
            }
            ASSERT_EQ(result.norm, first.norm);
          }
        }
      }
    }
  }
};

TEST_P(EngineBitsTest, AreThoseOfAnyStageBucketCapAndSchedule) {
  ExpectSameBits(ToyRun());
}

TEST_P(EngineBitsTest, StayTheSameWithMicroBatchesAndCoalescing) {
  ToyRun run;
  run.options.micro_batches = 2;
  run.plan.coalesce_bytes = 65536;
  run.plan.max_bytes_in_flight = 20000;
  run.steps = 2;
  ExpectSameBits(run);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineBitsTest, Values(1, 2, 3, 4));

// Buckets are flat: they are sent from where backward adds gradients, and
// arrive where modules read parameters.
TEST(EngineTrafficTest, NothingOfABucketIsCopiedToTravel) {
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyRun run;
    run.options.zero_stage = stage;
    run.options.max_live_bytes = stage == 3 ? 120'000 : 0;
    const Planned planned = PlanOf(run);
    ASSERT_EQ(planned.error, "");
    size_t of_buckets = 0;
    for (const nlohmann::json& launch : planned.plan["launches"]) {
      EXPECT_NE(launch["way"], "pack") << launch["members"];
      if (launch["bytes"] > 1024) of_buckets += launch["members"].size();
    }
    EXPECT_GE(of_buckets, planned.info.num_buckets);
    for (const nlohmann::json& place : planned.plan["arena"]) {
      EXPECT_EQ(place["name"].get<std::string>().rfind("packing", 0),
                std::string::npos);
    }
  }
}

TEST(EngineNormTest, IsThatOfTheMeanGradientAndLimitsTheStep) {
  ToyRun run;
  run.steps = 1;
  run.engine.clip_norm = 1e-3f;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  EXPECT_GT(result.norm, 1.0);
  EXPECT_LT(LargestDifference(result.weights[0], ReferenceWeights(run)), 1e-5);
}

TEST(EngineMemoryTest, StagesKeepLessAndLess) {
  ToyRun run;
  run.ranks = 4;
  run.options.bucket_bytes = 4096;
  commsched_engine_info_t info[3];
  for (uint32_t stage : {0u, 1u, 2u}) {
    run.options.zero_stage = stage;
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    info[stage] = result.info;
  }
  EXPECT_EQ(info[0].num_parameters, 1650u + 4096 + 64 + 2100 + 7 + 17);
  EXPECT_EQ(info[0].gradient_bytes, info[0].parameter_bytes);
  EXPECT_EQ(info[0].optimizer_bytes, 2 * info[0].parameter_bytes);
  EXPECT_EQ(info[1].optimizer_bytes, info[0].optimizer_bytes / 4);
  EXPECT_EQ(info[1].gradient_bytes, info[0].gradient_bytes);
  EXPECT_LT(info[2].gradient_bytes, info[1].gradient_bytes);
  EXPECT_GT(info[2].arena_bytes, 0u);
  EXPECT_LT(info[2].arena_bytes, info[1].gradient_bytes);
}

TEST(EngineMemoryTest, AnArenaLimitOfAllBytesKeepsBucketsApart) {
  ToyRun run;
  run.options.bucket_bytes = 4096;
  run.plan.arena_bytes = UINT64_MAX;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.info.arena_bytes, result.info.parameter_bytes);
}

TEST(EngineMemoryTest, GradientsOfMicroBatchesAreAllAliveTogether) {
  ToyRun run;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.info.arena_bytes, result.info.parameter_bytes);
}

TEST(EngineKernelsTest, TheCallersTableIsUsed) {
  struct Counts {
    std::atomic<int> adamw{0}, squares{0}, zero{0};
  } counts;
  commsched_engine_kernels_t kernels = commsched_engine_kernels_init();
  kernels.user = &counts;
  kernels.adamw = [](void* user, commsched_stream_t,
                     const commsched_adamw_args_t*) {
    ++static_cast<Counts*>(user)->adamw;
    return commsched_status_t{COMMSCHED_OK};
  };
  kernels.block_squares = [](void* user, commsched_stream_t, const void*,
                             commsched_dtype_t, uint64_t, double* out) {
    ++static_cast<Counts*>(user)->squares;
    *out = 0;
    return commsched_status_t{COMMSCHED_OK};
  };
  ToyRun run;
  run.engine.kernels = &kernels;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  EXPECT_GT(counts.adamw, 0);
  EXPECT_GT(counts.squares, 0);
  EXPECT_EQ(counts.zero, 0);
  for (uint64_t i = 0; i < 17; ++i) {
    ASSERT_EQ(result.weights[0][i], ToyInitialValue(0, i));
  }
}

TEST(EngineStepTest, AllocatesNothingOnceWarm) {
  ToyRun run;
  run.ranks = 3;
  const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

TEST(EngineCostsTest, AreMeasuredPerOp) {
  ToyRun run;
  run.engine.measure_steps = 2;
  run.options.zero_stage = 1;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        std::string message = toy.Build();
        for (uint32_t step = 0; message.empty() && step < 3; ++step) {
          message = toy.Step(step);
        }
        if (!message.empty()) return message;
        commsched_engine_info_t info = commsched_engine_info_init();
        if (commsched_engine_get_info(toy.engine(), &info) != COMMSCHED_OK) {
          return commsched_engine_last_error();
        }
        std::vector<int64_t> costs(info.num_ops, -1);
        EXPECT_EQ(
            commsched_engine_op_costs(toy.engine(), costs.data(), costs.size()),
            COMMSCHED_FAILED_PRECONDITION);
        EXPECT_EQ(commsched_engine_drain(toy.engine()), COMMSCHED_OK);
        EXPECT_EQ(
            commsched_engine_op_costs(toy.engine(), costs.data(), costs.size()),
            COMMSCHED_OK);
        // The first eight ops are the forwards and backwards.
        for (size_t op = 4; op < 8; ++op) EXPECT_GT(costs[op], 0) << op;
        for (int64_t cost : costs) EXPECT_GE(cost, 0);
        return "";
      });
  EXPECT_EQ(error, "");
}

void ExpectEveryCallFails(commsched_engine_t* engine, const char* why) {
  const auto calls = std::vector<std::function<commsched_status_t()>>{
      [&] { return commsched_engine_step_begin(engine, nullptr); },
      [&] { return ForwardBegin(engine, 0, 0); },
      [&] { return BackwardEnd(engine, 0, 0); },
      [&] { return UpdateWith(engine, 0.1f); },
      [&] { return commsched_engine_step_end(engine); },
      [&] { return commsched_engine_drain(engine); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i](), COMMSCHED_ABORTED) << "call " << i;
    EXPECT_THAT(commsched_engine_last_error(), HasSubstr(why)) << "call " << i;
  }
}

TEST(EngineFailureTest, OneRanksAbortReachesTheOthers) {
  ToyRun run;
  run.ranks = 3;
  std::atomic<int> aborted{0};
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
        if (std::string message = toy.Build(); !message.empty()) {
          return message;
        }
        if (rank == 1) {
          commsched_session_abort(commsched_engine_session(toy.engine()),
                                  "disk full");
          return "";
        }
        for (uint32_t step = 0; step < 3; ++step) {
          const std::string message = toy.Step(step);
          if (message.empty()) continue;
          EXPECT_THAT(message, HasSubstr("disk full"));
          ExpectEveryCallFails(toy.engine(), "disk full");
          ++aborted;
          return "";
        }
        return "no failure";
      });
  EXPECT_EQ(error, "");
  EXPECT_EQ(aborted, 2);
}

// Whichever call was the first to fail.
TEST(EngineFailureTest, TheEndOfAModuleFailsAgain) {
  ToyRun run;
  run.ranks = 1;
  const std::string error = OnRanks(run, [](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    if (!message.empty()) return message;
    commsched_engine_t* engine = toy.engine();
    EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    EXPECT_EQ(ForwardBegin(engine, 0, 0), COMMSCHED_OK);
    commsched_session_abort(commsched_engine_session(engine), "disk full");
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(ForwardEnd(engine, 0, 0), COMMSCHED_ABORTED);
    }
    ExpectEveryCallFails(engine, "disk full");
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(EngineFailureTest, PoisonedBuffersAreNamedAndNeitherSteppedNorRead) {
  ToyRun run;
  std::atomic<bool> all_launched{false};
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (!message.empty()) return message;
    commsched_engine_t* engine = toy.engine();
    if (rank == 1) {  // never launches, so that rank 0 cannot get its sums
      EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
      EXPECT_TRUE(test::Await([&] { return all_launched.load(); }));
      commsched_session_abort(commsched_engine_session(engine), "disk full");
      return message;
    }
    const uint64_t count = ToyParameters()[0].count();
    std::vector<float> before(count);
    EXPECT_EQ(commsched_engine_get_parameter(engine, 0, before.data(), count),
              COMMSCHED_OK);
    message = toy.ForwardBackward(0);
    all_launched = true;
    EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_ABORTED);
    EXPECT_THAT(commsched_engine_last_error(),
                AllOf(HasSubstr("update refuses buffer "
                                "'gradient_shard.0'"),
                      HasSubstr("poisoned"), HasSubstr("disk full")));
    std::vector<float> after(count);
    EXPECT_EQ(commsched_engine_get_parameter(engine, 0, after.data(), count),
              COMMSCHED_ABORTED);
    EXPECT_THAT(commsched_engine_last_error(),
                AllOf(HasSubstr(ToyParameters()[0].name),
                      HasSubstr("refuses buffer 'parameters."),
                      HasSubstr("disk full")));
    const void* values = nullptr;
    void* gradient = nullptr;
    EXPECT_EQ(commsched_engine_parameter_address(engine, 0, &values, &gradient),
              COMMSCHED_OK);
    EXPECT_TRUE(std::equal(before.begin(), before.end(),
                           static_cast<const float*>(values)));
    return message;
  });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

// Stage 3: gathered parameters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Buckets, padded to 4 KiB: 0 of embed, 8 KiB; 1 and 2 of block0, 16 and 4 KiB;
// 3 of block1, 12 KiB; 4 of block1 and head, 4 KiB.
ToyRun Stage3Run() {
  ToyRun run;
  run.ranks = 4;
  run.options.zero_stage = 3;
  run.options.bucket_bytes = 4096;
  return run;
}

// The backward of block0 needs most: its parameters, its gradients, and the
// gradients of embed.
constexpr uint64_t kLeastBytes = 2 * (16384 + 4096) + 8192;

// With what packing them costs.
constexpr uint64_t kTightBytes = kLeastBytes + 4096;

std::vector<float> WeightsOfStage0(ToyRun run) {
  run.options.zero_stage = 0;
  run.options.bucket_bytes = 1 << 20;
  run.options.max_live_bytes = 0;
  run.options.persist_below = 0;
  run.options.prefetch_bytes = 0;
  ToyResult result = RunToy(run);
  EXPECT_EQ(result.error, "");
  return result.weights[0];
}

void ExpectBitsOfStage0(const ToyRun& run) {
  const std::vector<float> expected = WeightsOfStage0(run);
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  for (const std::vector<float>& weights : result.weights) {
    EXPECT_TRUE(SameBits(weights, expected));
  }
}

// Of each gather of a stay: the op after which it goes out.
std::map<std::string, std::string> GathersOf(const nlohmann::json& plan) {
  std::map<std::string, std::string> gathers;
  for (const auto& launch : plan["launches"]) {
    for (const std::string member : launch["members"]) {
      if (member.rfind("all_gather", 0) == 0) {
        gathers[member] = launch["due_after"];
      }
    }
  }
  return gathers;
}

TEST(Zero3PlanTest, WithoutALimitEachBucketIsGatheredOnceFromTheBegin) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = UINT64_MAX;
  const Planned planned = PlanOf(run);
  const auto gathers = GathersOf(planned.plan);
  EXPECT_EQ(gathers.size(), planned.info.num_buckets);
  for (const auto& [name, after] : gathers) {
    EXPECT_TRUE(after.empty()) << name << " after " << after;
  }
}

TEST(Zero3PlanTest, UnderALimitBucketsAreReleasedAndGatheredAgain) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = kTightBytes;
  const Planned planned = PlanOf(run);
  EXPECT_LE(planned.info.arena_bytes, kTightBytes);
  const auto gathers = GathersOf(planned.plan);
  EXPECT_GT(gathers.size(), planned.info.num_buckets);
  // The largest bucket, block0's weight, is not there for backward.
  ASSERT_TRUE(gathers.count("all_gather.1.1"));
  EXPECT_THAT(gathers.at("all_gather.1.1"), HasSubstr("backward[0]."));
  // That of block1 and the head is used by four ops in a row.
  EXPECT_FALSE(gathers.count("all_gather.4.1"));
}

TEST(Zero3PlanTest, GathersGoOutBeforeTheModuleBeforeTheirUseHasEnded) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = 2 * kTightBytes;
  const auto gathers = GathersOf(PlanOf(run).plan);
  // Of block1, whose forward follows block0's.
  ASSERT_TRUE(gathers.count("all_gather.3.0"));
  EXPECT_THAT(gathers.at("all_gather.3.0"), Not(HasSubstr("block0")));
}

TEST(Zero3PlanTest, ThePrefetchLimitSaysHowFarAheadGathersGoOut) {
  ToyRun run = Stage3Run();
  run.options.prefetch_bytes = 1;
  const auto gathers = GathersOf(PlanOf(run).plan);
  // Of embed, block0 and block1: each when the module before it has ended.
  EXPECT_EQ(gathers.at("all_gather.0.0"), "");
  EXPECT_THAT(gathers.at("all_gather.1.0"), HasSubstr("forward[0].embed"));
  EXPECT_THAT(gathers.at("all_gather.3.0"), HasSubstr("forward[0].block0"));
  ExpectBitsOfStage0(run);
}

TEST(Zero3PlanTest, NothingInTheArenaLiesBeyondTheLimit) {
  for (uint64_t limit = kTightBytes; limit < 4 * kTightBytes; limit += 5000) {
    ToyRun run = Stage3Run();
    run.options.max_live_bytes = limit;
    const Planned planned = PlanOf(run);
    EXPECT_LE(planned.info.arena_bytes, limit);
    for (const auto& place : planned.plan["arena"]) {
      EXPECT_LE(
          place["offset"].get<uint64_t>() + place["bytes"].get<uint64_t>(),
          limit);
    }
  }
}

TEST(Zero3PlanTest, ALimitThatIsTooSmallNamesTheModuleAndWhatItNeeds) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = kLeastBytes - 1;
  const std::string error =
      OnRanks(run, [](ToyRank& toy, int32_t) { return toy.Build(); });
  EXPECT_THAT(error, AllOf(HasSubstr("max_live_bytes 49151 is too small"),
                           HasSubstr("backward of module 'block0' needs 49152"),
                           HasSubstr("20480 of gathered parameter buckets"),
                           HasSubstr("28672 of gradient buckets")));
}

TEST(Zero3PlanTest, TheArenaLimitOfThePlanHoldsToo) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = 4 * kTightBytes;
  run.plan.arena_bytes = kTightBytes;
  EXPECT_LE(PlanOf(run).info.arena_bytes, kTightBytes);
  run.plan.arena_bytes = 4096;
  EXPECT_THAT(OnRanks(run, [](ToyRank& toy, int32_t) { return toy.Build(); }),
              HasSubstr("plan.arena_bytes 4096 is too small"));
}

TEST(Zero3BitsTest, AreThoseOfStage0ForAnyLimitBucketCapAndSchedule) {
  ToyRun run = Stage3Run();
  run.steps = 2;
  const std::vector<float> expected = WeightsOfStage0(run);
  for (uint64_t bucket_bytes : {1024u, 4096u, 16384u}) {
    for (uint64_t limit : {70000u, 90000u, 120000u, 0u}) {
      for (uint32_t launches : {0u, 1u, 3u}) {
        for (uint32_t schedule : {COMMSCHED_OVERLAP, COMMSCHED_SERIAL}) {
          run.options.bucket_bytes = bucket_bytes;
          run.options.max_live_bytes = limit;
          run.plan.max_launches_in_flight = launches;
          run.plan.schedule = schedule;
          const ToyResult result = RunToy(run);
          ASSERT_EQ(result.error, "");
          for (const std::vector<float>& weights : result.weights) {
            ASSERT_TRUE(SameBits(weights, expected))
                << "bucket " << bucket_bytes << ", limit " << limit
                << ", launches " << launches << ", schedule " << schedule;
          }
          if (limit != 0) {
            ASSERT_LE(result.info.arena_bytes, limit);
          }
        }
      }
    }
  }
}

TEST(Zero3BitsTest, SurviveMergedAndSplitCollectives) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = 2 * kTightBytes;
  run.plan.coalesce_bytes = 20000;
  ExpectBitsOfStage0(run);
  run.plan.coalesce_bytes = 0;
  run.plan.partition_bytes = 2048;
  run.plan.priority = COMMSCHED_PRIORITY_ON;
  ExpectBitsOfStage0(run);
}

TEST(Zero3BitsTest, SurviveMicroBatchesAndEdgeBuckets) {
  ToyRun run = Stage3Run();
  run.options.micro_batches = 3;
  run.options.edge_bucket_bytes = 1024;
  run.options.max_live_bytes = 80000;
  ExpectBitsOfStage0(run);
}

TEST(Zero3BitsTest, SurviveParametersThatStayWhole) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = kTightBytes;
  for (uint64_t persist_below : {100u, 7000u, 1u << 20}) {
    run.options.persist_below = persist_below;
    ExpectBitsOfStage0(run);
  }
}

TEST(Zero3BitsTest, SurviveAParameterWithoutGradients) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = kTightBytes;
  run.unused_parameter = 3;  // block0.bias
  ExpectBitsOfStage0(run);
  run.unused_parameter = 4;  // block1.weight, alone in its bucket
  ExpectBitsOfStage0(run);
}

TEST(Zero3BitsTest, AreThoseOfOneRank) {
  ToyRun run = Stage3Run();
  run.ranks = 1;
  run.options.max_live_bytes = kTightBytes;
  ExpectBitsOfStage0(run);
}

TEST(Zero3MemoryTest, ARankKeepsShardsAndTheArena) {
  ToyRun run = Stage3Run();
  run.options.zero_stage = 0;
  const commsched_engine_info_t whole = RunToy(run).info;
  run.options.zero_stage = 3;
  run.options.max_live_bytes = kTightBytes;
  const commsched_engine_info_t sharded = RunToy(run).info;
  EXPECT_EQ(sharded.parameter_bytes, whole.parameter_bytes / 4);
  EXPECT_EQ(sharded.gradient_bytes, whole.gradient_bytes / 4);
  EXPECT_EQ(sharded.optimizer_bytes, whole.optimizer_bytes / 4);
  EXPECT_EQ(sharded.state_bytes - sharded.norm_bytes,
            (whole.state_bytes - whole.norm_bytes) / 4 + sharded.arena_bytes);
  EXPECT_LE(sharded.arena_bytes, kTightBytes);
}

TEST(Zero3MemoryTest, ParametersThatStayWholeAreOutsideOfTheArena) {
  ToyRun run = Stage3Run();
  run.options.persist_below = 1 << 20;
  const commsched_engine_info_t all = RunToy(run).info;
  EXPECT_EQ(all.parameter_bytes, all.gradient_bytes * 4);
}

// Whatever is whole on a rank in the course of a step lies in memory of the
// size of the limit.
TEST(Zero3MemoryTest, EveryAddressOfAStepLiesWithinTheLimit) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = kTightBytes;
  EXPECT_LE(BytesSeenInBackwards(run), kTightBytes);
}

TEST(Zero3ValuesTest, TheRangesOfTheRanksMakeUpEachParameter) {
  ToyRun run = Stage3Run();
  run.options.persist_below = 30;  // block1.bias
  std::vector<std::vector<int>> kept;
  for (const ToyParameter& p : ToyParameters()) kept.emplace_back(p.count());
  std::mutex mutex;
  EXPECT_EQ(OnRanks(run,
                    [&](ToyRank& toy, int32_t) {
                      std::string message = toy.Build();
                      const std::lock_guard<std::mutex> lock(mutex);
                      for (uint32_t p = 0; p < kept.size(); ++p) {
                        uint64_t offset = 0;
                        uint64_t count = 0;
                        EXPECT_EQ(commsched_engine_parameter_range(
                                      toy.engine(), p, &offset, &count),
                                  COMMSCHED_OK);
                        for (uint64_t i = 0; i < count; ++i) {
                          ++kept[p][offset + i];
                        }
                      }
                      return message;
                    }),
            "");
  for (uint32_t p = 0; p < kept.size(); ++p) {
    const int times = p == 5 ? run.ranks : 1;
    EXPECT_THAT(kept[p], Each(times)) << ToyParameters()[p].name;
  }
}

TEST(Zero3ValuesTest, WholeParametersAndPartsCanBeSet) {
  ToyRun run = Stage3Run();
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    commsched_engine_t* engine = toy.engine();
    std::vector<float> expected(ToyParameters()[4].count());
    std::iota(expected.begin(), expected.end(), 1.0f);
    EXPECT_EQ(commsched_engine_set_parameter(engine, 4, expected.data(),
                                             expected.size()),
              COMMSCHED_OK);
    std::fill(expected.begin() + 700, expected.begin() + 1600, -1.0f);
    EXPECT_EQ(commsched_engine_set_parameter_range(engine, 4, 700,
                                                   expected.data() + 700, 900),
              COMMSCHED_OK);
    std::vector<float> weights;
    if (message.empty()) message = toy.Weights(&weights);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           weights.begin() + 17 + 1650 + 4096 + 64));
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(Zero3StepTest, AllocatesNothingOnceWarm) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = 2 * kTightBytes;
  const auto step = [](ToyRank& toy, uint32_t t) {
    const std::string message = toy.Step(t);
    if (!message.empty()) return message;
    return toy.Evaluate([](uint32_t) { return std::string(); });
  };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

TEST(Zero3EvaluationTest, BetweenStepsChangesNothingAndSeesTheWeights) {
  ToyRun run = Stage3Run();
  run.options.max_live_bytes = kTightBytes;
  run.steps = 4;
  const ToyResult plain = RunToy(run);
  ASSERT_EQ(plain.error, "");
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    std::vector<float> weights;
    for (uint32_t step = 0; message.empty() && step < run.steps; ++step) {
      message = toy.Step(step);
      weights.clear();
      if (message.empty()) message = toy.Weights(&weights);
      weights.clear();
      if (message.empty()) message = toy.Weights(&weights);
    }
    EXPECT_TRUE(SameBits(weights, plain.weights[0]));
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(Zero3EvaluationTest, ValuesAreWholeOnlyWhereAModuleUsesThem) {
  ToyRun run = Stage3Run();
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    commsched_engine_t* engine = toy.engine();
    const void* values = nullptr;
    void* gradient = nullptr;
    std::vector<float> copy(ToyParameters()[4].count());
    const auto get = [&] {
      return commsched_engine_get_parameter(engine, 4, copy.data(),
                                            copy.size());
    };
    EXPECT_EQ(get(), COMMSCHED_FAILED_PRECONDITION);
    EXPECT_THAT(
        commsched_engine_last_error(),
        AllOf(HasSubstr("'block1.weight', which no rank has as a whole"),
              HasSubstr("pass_begin of FORWARD of module 2 'block1'")));
    message = toy.Evaluate([&](uint32_t module) {
      EXPECT_EQ(
          commsched_engine_parameter_address(engine, 4, &values, &gradient),
          COMMSCHED_OK);
      EXPECT_EQ(values != nullptr, module == 2) << module;
      EXPECT_NE(gradient, nullptr);
      EXPECT_EQ(get(),
                module == 2 ? COMMSCHED_OK : COMMSCHED_FAILED_PRECONDITION);
      return std::string();
    });
    EXPECT_EQ(copy[5], ToyInitialValue(4, 5));
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(Zero3EvaluationTest, AnAbortReachesARankThatEvaluates) {
  ToyRun run = Stage3Run();
  run.ranks = 2;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (!message.empty()) return message;
    if (rank == 1) {
      commsched_engine_abort(toy.engine(), "disk full");
      return message;
    }
    std::vector<float> weights;
    EXPECT_THAT(toy.Weights(&weights), HasSubstr("disk full"));
    EXPECT_EQ(commsched_engine_step_begin(toy.engine(), nullptr),
              COMMSCHED_ABORTED);
    return message;
  });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

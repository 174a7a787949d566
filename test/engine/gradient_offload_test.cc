// Reduced gradients in a pool until the optimizer: the same training with less
// memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "test/engine/create_engine.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

ToyRun WithGradientPools(ToyRun run) {
  run.gradient_pools = std::make_shared<TestPools>();
  return run;
}

ToyRun RunOfManyBuckets(uint32_t stage) {
  ToyRun run;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = 4096;
  run.steps = 4;
  return run;
}

// No bucket accumulates whole: the reductions of each micro-batch add up.
ToyRun RunAtOnce(uint32_t stage, uint32_t micro_batches = 3) {
  ToyRun run = RunOfManyBuckets(stage);
  run.options.micro_batches = micro_batches;
  run.options.accumulate_bytes = 1;
  return run;
}

// Backwards module by module, of the last micro-batch first: windows of buckets
// of several modules begin before others end.
std::vector<commsched_pass_t> OverlappingPasses(uint32_t micro_batches) {
  std::vector<commsched_pass_t> passes;
  for (uint32_t mb = 0; mb < micro_batches; ++mb) {
    for (uint32_t m = 0; m <= kHead; ++m) {
      passes.push_back({COMMSCHED_FORWARD, m, mb, 0});
    }
  }
  for (uint32_t m = kHead + 1; m-- > 0;) {
    for (uint32_t mb = micro_batches; mb-- > 0;) {
      passes.push_back({COMMSCHED_BACKWARD, m, mb, 0});
    }
  }
  return passes;
}

ToyCancel CancelsOneBackward(const ToyBegin& next) {
  const bool here = next.pass.rank == 0 && next.pass.step == 1 &&
                    next.pass.micro_batch == 1 && next.backward &&
                    next.pass.module == kBlock0;
  return here ? ToyCancel::kWithin : ToyCancel::kNot;
}

struct GradientVariant {
  const char* name;
  void (*change)(ToyRun&);
};

// (ZeRO stage, ranks, variant)
class GradientOffloadBitsTest
    : public ::testing::TestWithParam<
          std::tuple<uint32_t, int32_t, GradientVariant>> {};

TEST_P(GradientOffloadBitsTest, WeightsAreThoseOfGradientsInMemory) {
  ToyRun run = RunOfManyBuckets(std::get<0>(GetParam()));
  run.ranks = std::get<1>(GetParam());
  std::get<2>(GetParam()).change(run);
  ToyRun memory = run;
  memory.options.gradient_staging_bytes = 0;
  const ToyResult in_memory = RunToy(memory);
  ASSERT_EQ(in_memory.error, "");
  const ToyResult offloaded = RunToy(WithGradientPools(run));
  ASSERT_EQ(offloaded.error, "");
  EXPECT_GT(offloaded.info.offloaded_gradient_bytes, 0u);
  EXPECT_GT(offloaded.info.copied_bytes, in_memory.info.copied_bytes);
  for (size_t rank = 0; rank < in_memory.weights.size(); ++rank) {
    EXPECT_TRUE(SameBits(offloaded.weights[rank], in_memory.weights[rank]))
        << "rank " << rank;
  }
  EXPECT_EQ(offloaded.norm, in_memory.norm);
}

std::string NameOfBitsTest(
    const ::testing::TestParamInfo<GradientOffloadBitsTest::ParamType>& info) {
  return std::string(std::get<2>(info.param).name) + "_in_stage_" +
         std::to_string(std::get<0>(info.param)) + "_on_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    StagesRanksAndVariants, GradientOffloadBitsTest,
    Combine(
        Values(2u, 3u), Values(1, 2, 3, 4),
        Values(
            GradientVariant{"adamw", [](ToyRun&) {}},
            GradientVariant{"unclipped",
                            [](ToyRun& run) { run.engine.clip_norm = 0; }},
            GradientVariant{"narrow",
                            [](ToyRun& run) {
                              run.options.parameter_dtype = COMMSCHED_BF16;
                              run.options.reduce_dtype = COMMSCHED_BF16;
                            }},
            GradientVariant{"cast",
                            [](ToyRun& run) {
                              run.options.parameter_dtype = COMMSCHED_BF16;
                            }},
            GradientVariant{
                "state_too",
                [](ToyRun& run) { run.pools = std::make_shared<TestPools>(); }},
            GradientVariant{"a_slot_each",
                            [](ToyRun& run) {
                              run.options.gradient_staging_bytes = 1 << 20;
                            }},
            GradientVariant{
                "no_state",
                [](ToyRun& run) { run.optimizer = commsched_sgd(0, 0); }},
            GradientVariant{"windows",
                            [](ToyRun& run) { run.options.micro_batches = 3; }},
            GradientVariant{"some_at_once",
                            [](ToyRun& run) {
                              run.options.micro_batches = 3;
                              run.options.accumulate_bytes = 8192;
                            }},
            GradientVariant{
                "serial",
                [](ToyRun& run) { run.plan.schedule = COMMSCHED_SERIAL; }},
            GradientVariant{
                "merged_launches",
                [](ToyRun& run) { run.plan.coalesce_bytes = 1 << 20; }},
            GradientVariant{"recorded",
                            [](ToyRun& run) {
                              run.order = [](uint32_t step) {
                                return step < 2
                                           ? std::vector<uint32_t>{0, 2, 1, 3}
                                           : std::vector<uint32_t>{1, 0, 2, 3};
                              };
                            }})),
    NameOfBitsTest);

void ReduceAtOnce(ToyRun& run, uint32_t micro_batches = 3) {
  run.options.micro_batches = micro_batches;
  run.options.accumulate_bytes = 1;
}

INSTANTIATE_TEST_SUITE_P(
    StagesRanksAndVariantsAtOnce, GradientOffloadBitsTest,
    Combine(
        Values(2u, 3u), Values(1, 2, 3, 4),
        Values(GradientVariant{"three_micro_batches",
                               [](ToyRun& run) { ReduceAtOnce(run); }},
               GradientVariant{"two_micro_batches_unclipped",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run, 2);
                                 run.engine.clip_norm = 0;
                               }},
               GradientVariant{"narrow",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.options.parameter_dtype = COMMSCHED_BF16;
                                 run.options.reduce_dtype = COMMSCHED_BF16;
                               }},
               GradientVariant{"narrow_whole_too",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.options.accumulate_bytes = 8192;
                                 run.options.parameter_dtype = COMMSCHED_BF16;
                                 run.options.reduce_dtype = COMMSCHED_BF16;
                                 run.engine.clip_norm = 0;
                               }},
               GradientVariant{"cast",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run, 2);
                                 run.options.parameter_dtype = COMMSCHED_BF16;
                               }},
               GradientVariant{"state_too_unclipped_with_flags",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.pools = std::make_shared<TestPools>();
                                 run.engine.clip_norm = 0;
                                 run.options.cancel_all = 1;
                               }},
               GradientVariant{"a_slot_each",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.options.gradient_staging_bytes = 1 << 20;
                               }},
               GradientVariant{"overlapping",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.options.bucket_bytes = 16384;
                                 run.passes = OverlappingPasses(3);
                               }},
               GradientVariant{"overlapping_in_one_bucket",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.options.bucket_bytes = 1 << 20;
                                 run.options.reduce_dtype = COMMSCHED_BF16;
                                 run.passes = OverlappingPasses(3);
                               }},
               GradientVariant{"serial",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.plan.schedule = COMMSCHED_SERIAL;
                               }},
               GradientVariant{"merged_launches",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.plan.coalesce_bytes = 1 << 20;
                               }},
               GradientVariant{
                   "short_steps",
                   [](ToyRun& run) {
                     ReduceAtOnce(run);
                     run.num_micro_batches = [](int32_t rank, uint32_t step) {
                       return 1 + (static_cast<uint32_t>(rank) + step) % 3;
                     };
                   }},
               GradientVariant{"cancelled_by_one",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.cancels = CancelsOneBackward;
                               }},
               GradientVariant{"cancelled_by_one_for_all",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.cancels = CancelsOneBackward;
                                 run.cancel_scope = COMMSCHED_CANCEL_ALL;
                                 run.options.cancel_all = 1;
                               }},
               GradientVariant{"absent_and_ready",
                               [](ToyRun& run) {
                                 ReduceAtOnce(run);
                                 run.options.absent_gradients = 1;
                                 run.options.gradient_ready = 1;
                                 run.absent = [](const ToyPass& pass,
                                                 uint32_t parameter) {
                                   return (pass.step + parameter) % 3 == 0;
                                 };
                               }})),
    NameOfBitsTest);

// ---- Memory -----------------------------------------------------------------

class GradientOffloadStageTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static commsched_step_plan_info_t InfoOfPlan(const ToyRun& run) {
    commsched_step_plan_info_t info = commsched_step_plan_info_init();
    OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      if (rank > 0) return std::string();
      const StepPlanHandle plan =
          PlanModel(toy.model(), run.ranks, ToyStepOptions(run));
      EXPECT_EQ(commsched_step_plan_get_info(plan.get(), &info), COMMSCHED_OK);
      return std::string();
    });
    return info;
  }

  static void ExpectOneSlotIsEnough(ToyRun run) {
    const ToyResult in_memory = RunToy(run);
    run = WithGradientPools(run);
    const uint64_t slot = PlanOf(run).info.gradient_staging_bytes / 2;
    run.options.gradient_staging_bytes = slot;
    const ToyResult offloaded = RunToy(run);
    ASSERT_EQ(offloaded.error, "");
    EXPECT_EQ(offloaded.info.gradient_staging_bytes, slot);
    EXPECT_TRUE(SameBits(offloaded.weights[0], in_memory.weights[0]));
    run.options.gradient_staging_bytes = slot - 1;
    EXPECT_THAT(RunToy(run).error,
                AllOf(HasSubstr("gradient_staging_bytes is " +
                                std::to_string(slot - 1)),
                      HasSubstr("takes " + std::to_string(slot))));
  }

  static uint64_t NumStores(const Planned& planned) {
    uint64_t stores = 0;
    for (const auto& op : planned.plan["ops"]) {
      const auto name = op["name"].get<std::string>();
      if (name.rfind("store_gradients.", 0) != 0) continue;
      ++stores;
      EXPECT_EQ(op["lane"], 1) << name;
      EXPECT_FALSE(op["waits"].empty()) << name;
    }
    return stores;
  }
};

TEST_P(GradientOffloadStageTest, GradientsLeaveMemoryButForWhatIsOnItsWay) {
  const ToyRun run = RunOfManyBuckets(GetParam());
  const ToyResult in_memory = RunToy(run);
  const ToyResult offloaded = RunToy(WithGradientPools(run));
  ASSERT_EQ(in_memory.error + offloaded.error, "");
  const commsched_engine_info_t& info = offloaded.info;
  EXPECT_EQ(in_memory.info.offloaded_gradient_bytes, 0u);
  EXPECT_GT(info.gradient_staging_bytes, 0u);
  EXPECT_LT(info.gradient_staging_bytes, info.offloaded_gradient_bytes);
  EXPECT_EQ(in_memory.info.state_bytes - info.state_bytes,
            info.offloaded_gradient_bytes - info.gradient_staging_bytes);
  // So it is planned.
  const commsched_step_plan_info_t planned = InfoOfPlan(run);
  const commsched_step_plan_info_t with = InfoOfPlan(WithGradientPools(run));
  EXPECT_EQ(planned.gradient_bytes, info.offloaded_gradient_bytes);
  EXPECT_EQ(with.gradient_bytes, info.gradient_staging_bytes);
  EXPECT_EQ(with.arena_bytes, planned.arena_bytes);
  EXPECT_EQ(planned.due_bytes - with.due_bytes, info.offloaded_gradient_bytes);
}

// Of two buffers of a shard of each bucket, for what adds up and for what is
// added to it, the arena has a part of the second one.
TEST_P(GradientOffloadStageTest, SumsLeaveMemoryAndWhatIsAddedIsInTheArena) {
  const ToyRun run = RunAtOnce(GetParam());
  const ToyResult in_memory = RunToy(run);
  const ToyResult offloaded = RunToy(WithGradientPools(run));
  ASSERT_EQ(in_memory.error + offloaded.error, "");
  const commsched_engine_info_t& info = offloaded.info;
  EXPECT_LT(info.gradient_staging_bytes, info.offloaded_gradient_bytes);
  EXPECT_LE(info.state_bytes + info.offloaded_gradient_bytes -
                info.gradient_staging_bytes,
            in_memory.info.state_bytes);
  const commsched_step_plan_info_t planned = InfoOfPlan(run);
  const commsched_step_plan_info_t with = InfoOfPlan(WithGradientPools(run));
  EXPECT_EQ(planned.gradient_bytes, 2 * info.offloaded_gradient_bytes);
  EXPECT_EQ(with.gradient_bytes, info.gradient_staging_bytes);
  EXPECT_LE(with.arena_bytes,
            planned.arena_bytes + info.offloaded_gradient_bytes);
  EXPECT_EQ(planned.due_bytes - with.due_bytes, info.offloaded_gradient_bytes);
}

// Each reduction but the first is added to a sum that is fetched, unless it is
// in its slot still; then the sums go to the optimizer.
TEST_P(GradientOffloadStageTest, SumsAreCopiedOutAndInForEachMicroBatch) {
  ToyRun run = WithGradientPools(RunAtOnce(GetParam()));
  run.engine.clip_norm = 0;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  const uint64_t once = run.steps * result.info.offloaded_gradient_bytes;
  EXPECT_EQ(result.info.copied_bytes, (3 + 2 + 1) * once);
  run.options.gradient_staging_bytes = 1 << 20;
  const ToyResult in_slots = RunToy(run);
  ASSERT_EQ(in_slots.error, "");
  EXPECT_EQ(in_slots.info.copied_bytes, (3 + 1) * once);
}

// With a norm what the slots do not hold is copied back twice.
TEST_P(GradientOffloadStageTest, EachStepCopiesAllOfThemOutAndIn) {
  for (const float clip_norm : {0.0f, 1.0f}) {
    ToyRun run = WithGradientPools(RunOfManyBuckets(GetParam()));
    run.engine.clip_norm = clip_norm;
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    const uint64_t once = run.steps * result.info.offloaded_gradient_bytes;
    if (clip_norm == 0) {
      EXPECT_EQ(result.info.copied_bytes, 2 * once);
    } else {
      EXPECT_GT(result.info.copied_bytes, 2 * once);
      EXPECT_LT(result.info.copied_bytes, 3 * once);
    }
  }
}

TEST_P(GradientOffloadStageTest, MemoryForOneBucketIsEnoughAndLessIsRefused) {
  for (const bool at_once : {false, true}) {
    ToyRun run = at_once ? RunAtOnce(GetParam()) : RunOfManyBuckets(GetParam());
    run.options.reduce_dtype = at_once ? COMMSCHED_BF16 : COMMSCHED_F32;
    ExpectOneSlotIsEnough(run);
  }
}

// A copy out of a slot waits for the reduction into it, and what is reduced
// into it next for the copy.
TEST_P(GradientOffloadStageTest, CopiesAreOpsOnALaneOfTheirOwn) {
  const Planned planned =
      PlanOf(WithGradientPools(RunOfManyBuckets(GetParam())));
  ASSERT_EQ(planned.error, "");
  EXPECT_EQ(NumStores(planned), planned.info.num_buckets);
  const Planned at_once = PlanOf(WithGradientPools(RunAtOnce(GetParam())));
  ASSERT_EQ(at_once.error, "");
  EXPECT_EQ(NumStores(at_once), 3 * at_once.info.num_buckets);
}

INSTANTIATE_TEST_SUITE_P(Stages, GradientOffloadStageTest, Values(2u, 3u));

// ---- Failures ---------------------------------------------------------------

class GradientOffloadFailureTest
    : public ::testing::TestWithParam<
          std::tuple<uint32_t, int, TestPool::Kind, bool>> {};

TEST_P(GradientOffloadFailureTest, ACopyThatFailsIsAnErrorOnAllRanks) {
  const auto [stage, calls, kind, at_once] = GetParam();
  const ToyRun run =
      WithGradientPools(at_once ? RunAtOnce(stage) : RunOfManyBuckets(stage));
  std::vector<std::string> messages(static_cast<size_t>(run.ranks));
  OnRanks(run, [&, calls = calls, kind = kind](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (!message.empty()) return message;
    if (rank == 1) run.gradient_pools->of_rank[1].FailAfter(kind, calls);
    for (uint32_t step = 0; message.empty(); ++step) message = toy.Step(step);
    messages[static_cast<size_t>(rank)] = message;
    EXPECT_NE(commsched_engine_step_begin(toy.engine(), nullptr), COMMSCHED_OK);
    return std::string();
  });
  const bool reads = kind == TestPool::Kind::kRead;
  for (const std::string& message : messages) {
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 1"),
                      HasSubstr("copying the gradients of bucket "),
                      HasSubstr(reads ? "from its pool" : "to its pool"),
                      HasSubstr("the test's disk broke")));
  }
}

INSTANTIATE_TEST_SUITE_P(StagesAndCalls, GradientOffloadFailureTest,
                         Combine(Values(2u, 3u), Values(0, 1, 5, 9),
                                 Values(TestPool::Kind::kRead,
                                        TestPool::Kind::kWrite),
                                 Values(false, true)));

TEST(GradientOffloadErrorTest, WhatDoesNotFitIsRefusedByName) {
  ToyRun run = WithGradientPools(RunOfManyBuckets(1));
  run.ranks = 1;
  EXPECT_THAT(RunToy(run).error,
              HasSubstr("offloads_gradients is 1 with zero_stage 1; it is of "
                        "stages 2 and 3"));
  run = RunOfManyBuckets(2);
  run.ranks = 1;
  run.options.gradient_staging_bytes = 7;
  EXPECT_THAT(
      RunToy(run).error,
      HasSubstr("gradient_staging_bytes is 7 without offloads_gradients"));
  run.options.gradient_staging_bytes = 0;
  run.options.offloads_gradients = 1;
  EXPECT_THAT(RunToy(run).error,
              HasSubstr("gradient_pool is NULL; the step plan is for one"));
  TestPool pool;
  commsched_pool_t table = pool.table();
  run.engine.gradient_pool = &table;
  run.options.offloads_gradients = 0;
  EXPECT_THAT(RunToy(run).error,
              HasSubstr("gradient_pool is set; the step plan is for none"));
  table.write = nullptr;
  EXPECT_THAT(RunToy(run).error, HasSubstr("gradient_pool.write is NULL"));
  run = WithGradientPools(RunOfManyBuckets(2));
  run.ranks = 1;
  run.gradient_pools->of_rank[0].FailReserve();
  EXPECT_THAT(RunToy(run).error, HasSubstr("the test's disk is full"));
}

TEST(GradientOffloadSteadyStateTest, SumsInAPoolAllocateNothingOnceWarm) {
  for (const commsched_dtype_t reduced : {COMMSCHED_F32, COMMSCHED_BF16}) {
    ToyRun run = WithGradientPools(RunAtOnce(3));
    run.options.reduce_dtype = reduced;
    const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
    EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
  }
}

}  // namespace
}  // namespace commsched::engine

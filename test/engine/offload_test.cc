// The optimizer's state in a pool: the same training with less memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "commsched/checkpoint.h"
#include "test/engine/lent_memory.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

ToyRun Offloaded(ToyRun run) {
  run.pools = std::make_shared<TestPools>();
  return run;
}

ToyRun RunOf(uint32_t stage) {
  ToyRun run;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = 4096;
  run.steps = 4;
  return run;
}

// The one with the shape, and how.
struct Variant {
  const char* name;
  void (*change)(ToyRun&);
};

class OffloadBitsTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, Variant>> {};

TEST_P(OffloadBitsTest, WeightsAreThoseOfStateInMemory) {
  ToyRun run = RunOf(std::get<0>(GetParam()));
  std::get<1>(GetParam()).change(run);
  ToyRun memory = run;
  memory.options.offload_staging_bytes = 0;
  const ToyResult in_memory = RunToy(memory);
  ASSERT_EQ(in_memory.error, "");
  const ToyResult offloaded = RunToy(Offloaded(run));
  ASSERT_EQ(offloaded.error, "");
  for (size_t rank = 0; rank < in_memory.weights.size(); ++rank) {
    EXPECT_TRUE(SameBits(offloaded.weights[rank], in_memory.weights[rank]))
        << "rank " << rank;
  }
  EXPECT_EQ(offloaded.norm, in_memory.norm);
}

void Halve(ToyRun& run) { run.options.parameter_dtype = COMMSCHED_BF16; }

INSTANTIATE_TEST_SUITE_P(
    StagesAndVariants, OffloadBitsTest,
    Combine(Values(0u, 1u, 2u, 3u),
            Values(Variant{"adamw", [](ToyRun&) {}},
                   Variant{"unclipped",
                           [](ToyRun& run) { run.engine.clip_norm = 0; }},
                   Variant{"masters", Halve},
                   Variant{"one_slot",
                           [](ToyRun& run) {
                             Halve(run);
                             run.options.offload_staging_bytes = 60'000;
                           }},
                   Variant{"a_slot_each",
                           [](ToyRun& run) {
                             run.options.offload_staging_bytes = 1 << 20;
                           }},
                   Variant{"momentum",
                           [](ToyRun& run) {
                             run.optimizer = commsched_sgd(0.9f, 0);
                           }},
                   Variant{"only_masters",
                           [](ToyRun& run) {
                             Halve(run);
                             run.optimizer = commsched_sgd(0, 0);
                           }},
                   Variant{"windows",
                           [](ToyRun& run) {
                             run.options.micro_batches = 3;
                             run.options.accumulate_bytes = 8192;
                           }},
                   Variant{"serial",
                           [](ToyRun& run) {
                             run.plan.schedule = COMMSCHED_SERIAL;
                           }},
                   Variant{"recorded",
                           [](ToyRun& run) {
                             run.order = [](uint32_t step) {
                               return step < 2
                                          ? std::vector<uint32_t>{0, 2, 1, 3}
                                          : std::vector<uint32_t>{1, 0, 2, 3};
                             };
                           }})),
    [](const auto& info) {
      return std::string(std::get<1>(info.param).name) + "_in_stage_" +
             std::to_string(std::get<0>(info.param));
    });

TEST(OffloadTest, WhatStagesTheStateIsTheCallersMemory) {
  LentMemory lent;
  const commsched_engine_memory_t memory = lent.Table();
  ToyRun run = Offloaded(RunOf(1));
  run.ranks = 1;
  run.engine.memory = &memory;
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  // By default two, each for the largest bucket.
  EXPECT_EQ(lent.NumOf(result.info.staging_bytes / 2), 2);
  EXPECT_TRUE(lent.has_all_back());
}

// ---- Memory -----------------------------------------------------------------

class OffloadStageTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(OffloadStageTest, StateLeavesMemoryButForWhatIsOnItsWay) {
  ToyRun run = RunOf(GetParam());
  Halve(run);
  const ToyResult in_memory = RunToy(run);
  const ToyResult offloaded = RunToy(Offloaded(run));
  ASSERT_EQ(in_memory.error + offloaded.error, "");
  EXPECT_EQ(in_memory.info.offloaded_bytes, 0u);
  EXPECT_EQ(offloaded.info.offloaded_bytes, in_memory.info.optimizer_bytes);
  EXPECT_EQ(offloaded.info.optimizer_bytes, offloaded.info.staging_bytes);
  EXPECT_GT(offloaded.info.staging_bytes, 0u);
  EXPECT_EQ(in_memory.info.state_bytes - offloaded.info.state_bytes,
            offloaded.info.offloaded_bytes - offloaded.info.staging_bytes);
}

TEST_P(OffloadStageTest, EachStepCopiesAllOfItInAndOut) {
  const ToyRun run = Offloaded(RunOf(GetParam()));
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    for (uint32_t step = 0; message.empty() && step < 3; ++step) {
      message = toy.Step(step);
    }
    EXPECT_EQ(commsched_engine_drain(toy.engine()), COMMSCHED_OK);
    commsched_engine_info_t info = commsched_engine_info_init();
    EXPECT_EQ(commsched_engine_get_info(toy.engine(), &info), COMMSCHED_OK);
    EXPECT_EQ(info.copied_bytes, 2 * 3 * info.offloaded_bytes);
    EXPECT_GT(info.copy_ns, 0);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST_P(OffloadStageTest, MemoryForOneBucketIsEnoughAndLessIsRefused) {
  ToyRun run = RunOf(GetParam());
  const ToyResult in_memory = RunToy(run);
  run = Offloaded(run);
  const uint64_t slot = PlanOf(run).info.staging_bytes / 2;
  run.options.offload_staging_bytes = slot;
  const ToyResult offloaded = RunToy(run);
  ASSERT_EQ(offloaded.error, "");
  EXPECT_EQ(offloaded.info.staging_bytes, slot);
  EXPECT_TRUE(SameBits(offloaded.weights[0], in_memory.weights[0]));
  run.options.offload_staging_bytes = slot - 1;
  EXPECT_THAT(
      RunToy(run).error,
      AllOf(HasSubstr("offload_staging_bytes is " + std::to_string(slot - 1)),
            HasSubstr("takes " + std::to_string(slot))));
}

// The slots are full before a module runs. From then on a copy into one waits
// for that out of it, the optimizer for its own, and the next step's for what
// this one leaves.
TEST_P(OffloadStageTest, CopiesAreOpsOnALaneOfTheirOwn) {
  const Planned planned = PlanOf(Offloaded(RunOf(GetParam())));
  ASSERT_EQ(planned.error, "");
  std::vector<std::string> on_lane;
  std::string first_module;
  size_t before_modules = 0;
  for (const auto& op : planned.plan["ops"]) {
    const auto name = op["name"].get<std::string>();
    if (op["lane"] == 1) {
      on_lane.push_back(name);
    } else if (first_module.empty()) {
      first_module = name;
      before_modules = on_lane.size();
    }
    if (name.rfind("adamw.", 0) != 0) continue;
    const bool waits_for_its_own =
        std::ranges::any_of(op["waits"], [&](const auto& wait) {
          return wait.value("op", "") == "fetch." + name.substr(6) &&
                 wait["distance"] == 0;
        });
    EXPECT_TRUE(waits_for_its_own) << name;
  }
  EXPECT_EQ(before_modules, 2u);
  EXPECT_THAT(first_module, HasSubstr("forward"));
  std::vector<std::string> expected = {"fetch.0", "fetch.1"};
  const uint64_t buckets = planned.info.num_buckets;
  for (uint64_t b = 0; b < buckets; ++b) {
    expected.push_back("store." + std::to_string(b));
    if (b + 2 < buckets) expected.push_back("fetch." + std::to_string(b + 2));
  }
  EXPECT_EQ(on_lane, expected);
}

INSTANTIATE_TEST_SUITE_P(Stages, OffloadStageTest, Values(0, 1, 2, 3));

TEST(OffloadTest, NothingToOffloadIsNotAnError) {
  ToyRun run = Offloaded(RunOf(2));
  run.optimizer = commsched_sgd(0, 0);
  const ToyResult result = RunToy(run);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.info.offloaded_bytes, 0u);
}

TEST(OffloadTest, AStepThatOverflowsLeavesTheStateAsItWas) {
  ToyRun run = RunOf(1);
  run.options.parameter_dtype = COMMSCHED_F16;
  run.options.reduce_dtype = COMMSCHED_F16;
  run.engine.loss_scale = 0x1p20f;
  const ToyResult in_memory = RunToy(run);
  const ToyResult offloaded = RunToy(Offloaded(run));
  ASSERT_EQ(in_memory.error + offloaded.error, "");
  EXPECT_TRUE(SameBits(offloaded.weights[0], in_memory.weights[0]));
}

// ---- Failures ---------------------------------------------------------------

// Trains until it fails, on every rank, with a pool that fails once on rank 1.
std::vector<std::string> TrainToFailure(uint32_t stage, TestPool::Kind kind,
                                        int calls) {
  const ToyRun run = Offloaded(RunOf(stage));
  std::vector<std::string> messages(static_cast<size_t>(run.ranks));
  OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (!message.empty()) return message;
    if (rank == 1) run.pools->of_rank[1].FailAfter(kind, calls);
    for (uint32_t step = 0; message.empty(); ++step) message = toy.Step(step);
    messages[static_cast<size_t>(rank)] = message;
    // And it stays that way.
    EXPECT_NE(commsched_engine_step_begin(toy.engine(), nullptr), COMMSCHED_OK);
    EXPECT_NE(commsched_engine_drain(toy.engine()), COMMSCHED_OK);
    return std::string();
  });
  return messages;
}

class OffloadFailureTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, int>> {};

TEST_P(OffloadFailureTest, ACopyThatFailsIsAnErrorOnAllRanksThatNamesIt) {
  const auto [stage, calls] = GetParam();
  for (const std::string& message :
       TrainToFailure(stage, TestPool::Kind::kRead, calls)) {
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 1"), HasSubstr("bucket "),
                      HasSubstr("from its pool"), HasSubstr("DATA_LOSS"),
                      HasSubstr("the test's disk broke")));
  }
  for (const std::string& message :
       TrainToFailure(stage, TestPool::Kind::kWrite, calls)) {
    EXPECT_THAT(message, AllOf(HasSubstr("rank 1"), HasSubstr("to its pool"),
                               HasSubstr("UNAVAILABLE"),
                               HasSubstr("the test's disk broke")));
  }
}

INSTANTIATE_TEST_SUITE_P(StagesAndCalls, OffloadFailureTest,
                         Combine(Values(0u, 2u, 3u), Values(0, 1, 2, 5, 9)));

TEST(OffloadErrorTest, APoolThatIsFullIsFoundBeforeTheFirstStep) {
  ToyRun run = RunOf(1);
  run.ranks = 1;
  const uint64_t bytes = PlanOf(run).info.optimizer_bytes;
  run = Offloaded(run);
  run.pools->of_rank[0].FailReserve();
  EXPECT_THAT(RunToy(run).error,
              AllOf(HasSubstr("reserving " + std::to_string(bytes) + " bytes"),
                    HasSubstr("RESOURCE_EXHAUSTED"),
                    HasSubstr("the test's disk is full")));
}

TEST(OffloadErrorTest, APoolsStatusThatIsNoneIsNamedAndInternal) {
  ToyRun run = Offloaded(RunOf(1));
  run.ranks = 1;
  run.pools->of_rank[0].FailReserve(999);
  OnRanks(run, [&](ToyRank& toy, int32_t) {
    EXPECT_THAT(toy.Build(),
                HasSubstr("of its pool failed with 999, which is not "
                          "a status code: the test's disk"));
    return std::string();
  });
}

TEST(OffloadErrorTest, MastersThatCannotBeWrittenAreAnErrorThatStays) {
  ToyRun run = Offloaded(RunOf(1));
  run.ranks = 1;
  Halve(run);
  OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    run.pools->of_rank[0].FailAfter(TestPool::Kind::kWrite, 0);
    const std::vector<float> values(ToyParameters()[0].count());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(commsched_engine_set_parameter(toy.engine(), 0, values.data(),
                                               values.size()),
                COMMSCHED_UNAVAILABLE);
      EXPECT_THAT(commsched_engine_last_error(),
                  HasSubstr("writing the optimizer's state of bucket"));
    }
    EXPECT_THAT(toy.Step(0), HasSubstr("the test's disk broke"));
    return message;
  });
}

TEST(OffloadErrorTest, TablesWithoutAFunctionAndBytesWithoutAPoolAreRefused) {
  ToyRun run;
  run.ranks = 1;
  run.engine.clip_norm = 0;
  OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
    TestPool pool;
    commsched_pool_t table = pool.table();
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = toy.context();
    desc.group = toy.group();
    desc.optimizer_pool = &table;
    const StepPlanHandle plan = PlanModel(
        toy.model(), 1, OptionsFor(desc, commsched_step_plan_options_init()));
    desc.step_plan = plan.get();
    commsched_engine_t* engine = nullptr;
    const auto refuses = [&](const char* text) {
      EXPECT_EQ(commsched_engine_create(&desc, &engine),
                COMMSCHED_INVALID_ARGUMENT);
      EXPECT_THAT(commsched_engine_last_error(), HasSubstr(text));
    };
    table.read = nullptr;
    refuses("optimizer_pool.read is NULL");
    table = pool.table();
    table.write = nullptr;
    refuses("optimizer_pool.write is NULL");
    table.reserve = nullptr;
    refuses("optimizer_pool.reserve is NULL");
    table.struct_size = 3;
    refuses("struct_size of optimizer_pool is 3");
    desc.optimizer_pool = nullptr;
    refuses("optimizer_pool is NULL; the step plan is for one");
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    options.offload_staging_bytes = 7;
    StepPlanHandle none;
    EXPECT_EQ(TryPlan(toy.model(), 1, options, &none),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_THAT(commsched_last_error(),
                HasSubstr("offload_staging_bytes is 7 without offloads"));
    return "";
  });
}

// Memory for what is on its way is made once.
TEST(OffloadErrorTest, APlanWithAnotherNumberOfSlotsIsRefused) {
  ToyRun run = Offloaded(RunOf(2));
  run.ranks = 1;
  run.gradient_pools = std::make_shared<TestPools>();
  OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    for (const bool of_state : {false, true}) {
      commsched_step_plan_options_t options = ToyStepOptions(run);
      (of_state ? options.offload_staging_bytes
                : options.gradient_staging_bytes) = 1 << 20;
      const StepPlanHandle plan = PlanModel(toy.model(), 1, options);
      EXPECT_EQ(commsched_engine_replan(toy.engine(), plan.get()),
                COMMSCHED_INVALID_ARGUMENT);
      EXPECT_THAT(
          commsched_last_error(),
          HasSubstr(of_state ? "replan with slots for the optimizer's state:"
                             : "replan with slots for gradients:"));
    }
    return message;
  });
}

// ---- Checkpoints ------------------------------------------------------------

ToyRun Shape(int32_t ranks, uint32_t stage, bool offloads) {
  ToyRun run = ToyRunOf(ranks, stage);
  Halve(run);
  return offloads ? Offloaded(run) : run;
}

TEST(OffloadCheckpointTest, HalfAndHalfIsTheWholeToTheBitHoweverItIsKept) {
  for (uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyStretch stretch;
    stretch.run = Shape(2, stage, /*offloads=*/false);
    stretch.end = 6;
    std::vector<std::vector<float>> whole;
    ASSERT_EQ(TrainToy(stretch, &whole), "");
    for (const bool saved_offloaded : {false, true}) {
      const TemporaryFolder folder;
      stretch = ToyStretch();
      stretch.run = Shape(2, stage, saved_offloaded);
      stretch.end = 3;
      stretch.save = folder.path();
      stretch.save_every = 1;
      ASSERT_EQ(TrainToy(stretch), "");
      stretch.run = Shape(2, stage, /*offloads=*/true);
      stretch.end = 6;
      stretch.save.clear();
      stretch.load = folder.path();
      std::vector<std::vector<float>> resumed;
      ASSERT_EQ(TrainToy(stretch, &resumed), "");
      EXPECT_TRUE(SameBits(resumed[0], whole[0])) << "stage " << stage;
    }
  }
}

TEST(OffloadCheckpointTest, AnyShapeOfTheJobSavesAndLoadsTheSameBits) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), Shape(4, 2, /*offloads=*/true)), "");
  const std::vector<float> expected = ContentOf(folder.path());
  for (const auto& [ranks, stage] :
       std::vector<std::pair<int32_t, uint32_t>>{{1, 0}, {3, 0}, {3, 3}}) {
    for (const bool offloads : {false, true}) {
      ToyStretch stretch;
      stretch.run = Shape(ranks, stage, offloads);
      stretch.load = folder.path();
      stretch.end = 3;
      const TemporaryFolder again;
      stretch.save = again.path();
      ASSERT_EQ(TrainToy(stretch), "");
      EXPECT_TRUE(SameBits(ContentOf(again.path()), expected))
          << ranks << " ranks, stage " << stage;
    }
  }
}

TEST(OffloadCheckpointTest, StateThatCannotBeReadIsNotSaved) {
  const TemporaryFolder folder;
  ToyRun run = Shape(1, 0, /*offloads=*/true);
  OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    SaverHandle saver;
    EXPECT_EQ(CreateToySaver(toy, folder.path(), "run", &saver), "");
    EXPECT_EQ(toy.Step(0), "");
    EXPECT_EQ(commsched_engine_drain(toy.engine()), COMMSCHED_OK);
    run.pools->of_rank[0].FailAfter(TestPool::Kind::kRead, 2);
    EXPECT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0),
              COMMSCHED_DATA_LOSS);
    EXPECT_THAT(commsched_engine_last_error(),
                HasSubstr("the test's disk broke"));
    return message;
  });
  EXPECT_TRUE(folder.Names().empty());
}

}  // namespace
}  // namespace commsched::engine

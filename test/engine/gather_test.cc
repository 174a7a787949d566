// State that is collected on one rank: parameters, and checkpoints of one file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "commsched/checkpoint.h"
#include "test/checkpoint/temporary_folder.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Values;

struct GatherVariant {
  const char* name;
  int32_t ranks;
  uint32_t zero_stage;
  bool halves;  // Masters in a pool, beside bf16.
};

void PrintTo(const GatherVariant& variant, std::ostream* out) {
  *out << variant.name;
}

class StateGatherTest : public ::testing::TestWithParam<GatherVariant> {
 protected:
  static ToyRun Run() {
    ToyRun run = ToyRunOf(GetParam().ranks, GetParam().zero_stage);
    if (GetParam().halves) {
      run.options.parameter_dtype = COMMSCHED_BF16;
      run.pools = std::make_shared<TestPools>();
    }
    return run;
  }
};

// On each rank in turn, after each of two steps.
TEST_P(StateGatherTest, ARootGetsWhatTheRanksSave) {
  const ToyRun run = Run();
  const size_t parameters = ToyParameters().size();
  std::vector<std::vector<float>> pieces(parameters), gathered(parameters);
  EXPECT_EQ(
      OnRanks(run,
              [&](ToyRank& toy, int32_t rank) -> std::string {
                RETURN_MESSAGE_IF_ERROR(toy.Build());
                for (uint32_t step = 0; step < 2; ++step) {
                  RETURN_MESSAGE_IF_ERROR(toy.Step(step));
                  for (uint32_t p = 0; p < parameters; ++p) {
                    const uint32_t root =
                        (step + p) % static_cast<uint32_t>(run.ranks);
                    const bool mine = root == static_cast<uint32_t>(rank);
                    const uint64_t count = ToyParameters()[p].count();
                    if (mine) gathered[p].assign(count, -1);
                    RETURN_MESSAGE_IF_ERROR(commsched_engine_gather_parameter(
                        toy.engine(), p, root,
                        mine ? gathered[p].data() : nullptr, count));
                  }
                }
                return "";
              }),
      "");
  const TemporaryFolder folder;
  ToyStretch stretch;
  stretch.run = run;
  stretch.end = 2;
  stretch.save = folder.path();
  ASSERT_EQ(TrainToy(stretch), "");
  CheckpointHandle checkpoint;
  ASSERT_EQ(OpenToyCheckpoint(folder.path(), &checkpoint), "");
  ToyRun one = ToyRunOf(1, 0);
  EXPECT_EQ(
      OnRanks(one,
              [&](ToyRank& toy, int32_t) -> std::string {
                RETURN_MESSAGE_IF_ERROR(toy.Build());
                RETURN_MESSAGE_IF_ERROR(commsched_engine_checkpoint_load(
                    checkpoint.get(), toy.engine()));
                for (uint32_t p = 0; p < parameters; ++p) {
                  pieces[p].resize(ToyParameters()[p].count());
                  RETURN_MESSAGE_IF_ERROR(commsched_engine_get_parameter(
                      toy.engine(), p, pieces[p].data(), pieces[p].size()));
                }
                return "";
              }),
      "");
  for (size_t p = 0; p < parameters; ++p) {
    EXPECT_TRUE(SameBits(gathered[p], pieces[p])) << ToyParameters()[p].name;
  }
}

TEST_P(StateGatherTest, AWholeCheckpointIsOneFileWithTheSameContent) {
  const TemporaryFolder sharded, whole;
  ToyStretch stretch;
  stretch.run = Run();
  stretch.end = 3;
  stretch.save = sharded.path();
  ASSERT_EQ(TrainToy(stretch), "");
  stretch.save = whole.path();
  stretch.whole = true;
  ASSERT_EQ(TrainToy(stretch), "");
  EXPECT_THAT(whole.Names(),
              ElementsAre("index.json",
                          "step-00000003-run-rank-00000-of-00001.safetensors"));
  EXPECT_TRUE(SameBits(ContentOf(whole.path()), ContentOf(sharded.path())));
}

TEST_P(StateGatherTest, TrainingGoesOnFromAWholeCheckpointOnOtherRanks) {
  const TemporaryFolder sharded, whole;
  ToyStretch stretch;
  stretch.run = Run();
  std::vector<std::vector<float>> weights[2];
  for (const bool is_whole : {false, true}) {
    stretch.run = Run();
    stretch.whole = is_whole;
    stretch.load.clear();
    stretch.end = 2;
    stretch.save = (is_whole ? whole : sharded).path();
    ASSERT_EQ(TrainToy(stretch), "");
    stretch.load = stretch.save;
    stretch.save.clear();
    stretch.run.ranks = 3 - stretch.run.ranks % 2;
    stretch.run.options.zero_stage = 2;
    stretch.end = 4;
    ASSERT_EQ(TrainToy(stretch, &weights[is_whole]), "");
  }
  EXPECT_TRUE(SameBits(weights[0][0], weights[1][0]));
}

INSTANTIATE_TEST_SUITE_P(
    Variants, StateGatherTest,
    Values(GatherVariant{"Stage0Of2", 2, 0, false},
           GatherVariant{"Stage2Of1", 1, 2, false},
           GatherVariant{"Stage1Of3", 3, 1, false},
           GatherVariant{"Stage3Of4", 4, 3, false},
           GatherVariant{"OffloadedBf16Stage2Of3", 3, 2, true}),
    [](const auto& info) { return std::string(info.param.name); });

// After one step the first moment is a tenth of the mean of the gradients.
TEST(OptimizerStateTest, IsReadByItsNameByTheRankThatKeepsIt) {
  constexpr uint32_t kParameter = 2;  // Of one module.
  for (int32_t ranks = 1; ranks <= 4; ++ranks) {
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      ToyRun run = ToyRunOf(ranks, stage);
      run.engine.clip_norm = 0;
      run.options.micro_batches = 1;
      if (stage == 2) run.pools = std::make_shared<TestPools>();
      const auto expected = [&](uint64_t index) {
        float sum = 0;
        for (int32_t rank = 0; rank < ranks; ++rank) {
          sum += ToyGradient({rank, 0, 0, kBlock0, kParameter}, index,
                             ToyInitialValue(kParameter, index));
        }
        return 0.1f * sum / static_cast<float>(ranks);
      };
      std::atomic<uint64_t> read{0};
      EXPECT_EQ(
          OnRanks(
              run,
              [&](ToyRank& toy, int32_t) -> std::string {
                RETURN_MESSAGE_IF_ERROR(toy.Build());
                RETURN_MESSAGE_IF_ERROR(toy.Step(0));
                RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(toy.engine()));
                uint64_t begin = 0, count = 0;
                RETURN_MESSAGE_IF_ERROR(commsched_engine_master_range(
                    toy.engine(), kParameter, &begin, &count));
                std::vector<float> values(count);
                RETURN_MESSAGE_IF_ERROR(commsched_engine_get_state(
                    toy.engine(), kParameter, "adamw.m", values.data(), count));
                for (uint64_t i = 0; i < count; ++i) {
                  EXPECT_NEAR(values[i], expected(begin + i), 1e-6);
                }
                read += count;
                return "";
              }),
          "");
      EXPECT_EQ(read, ToyParameters()[kParameter].count());
    }
  }
}

TEST(OptimizerStateTest, WhatIsNotKeptIsRefusedByName) {
  ToyRun run = ToyRunOf(1, 2);
  run.describe = [](uint32_t p, commsched_parameter_desc_t* desc) {
    if (p == 2) desc->frozen = 1;
  };
  EXPECT_EQ(
      OnRanks(
          run,
          [](ToyRank& toy, int32_t) -> std::string {
            RETURN_MESSAGE_IF_ERROR(toy.Build());
            commsched_engine_t* const engine = toy.engine();
            float values[17] = {};
            const auto get = [&](uint32_t p, const char* name, uint64_t count) {
              return commsched_engine_get_state(engine, p, name, values, count);
            };
            EXPECT_EQ(get(0, "adamw.v", 17), COMMSCHED_OK);
            EXPECT_ENGINE_ERROR(
                get(0, "momentum", 17), COMMSCHED_NOT_FOUND,
                HasSubstr("get_state of 'momentum'; adamw keeps 'adamw.m', "
                          "'adamw.v'"));
            EXPECT_ENGINE_ERROR(get(0, nullptr, 17), COMMSCHED_INVALID_ARGUMENT,
                                HasSubstr("name is NULL"));
            EXPECT_ENGINE_ERROR(
                get(0, "adamw.m", 16), COMMSCHED_INVALID_ARGUMENT,
                HasSubstr("get_state of 'head.norm' with 16 elements; this "
                          "rank keeps 17"));
            EXPECT_ENGINE_ERROR(get(2, "adamw.m", 0),
                                COMMSCHED_FAILED_PRECONDITION,
                                HasSubstr("'block0.weight', which is frozen"));
            RETURN_MESSAGE_IF_ERROR(
                commsched_engine_step_begin(engine, nullptr));
            EXPECT_ENGINE_ERROR(get(0, "adamw.m", 17),
                                COMMSCHED_FAILED_PRECONDITION,
                                HasSubstr("get_state was called"));
            return "";
          }),
      "");
}

TEST(StateGatherErrorTest, WhatCannotBeGatheredIsRefusedByName) {
  EXPECT_EQ(
      OnRanks(ToyRunOf(1, 2),
              [](ToyRank& toy, int32_t) -> std::string {
                RETURN_MESSAGE_IF_ERROR(toy.Build());
                commsched_engine_t* const engine = toy.engine();
                float values[17] = {};
                EXPECT_ENGINE_ERROR(
                    commsched_engine_gather_parameter(engine, 0, 1, values, 17),
                    COMMSCHED_INVALID_ARGUMENT,
                    HasSubstr("to rank 1; the group has 1 ranks"));
                EXPECT_ENGINE_ERROR(
                    commsched_engine_gather_parameter(engine, 0, 0, values, 16),
                    COMMSCHED_INVALID_ARGUMENT,
                    HasSubstr("'head.norm' with 16 elements; it has 17"));
                EXPECT_ENGINE_ERROR(commsched_engine_gather_parameter(
                                        engine, 0, 0, nullptr, 17),
                                    COMMSCHED_INVALID_ARGUMENT,
                                    HasSubstr("out_values"));
                RETURN_MESSAGE_IF_ERROR(
                    commsched_engine_step_begin(engine, nullptr));
                EXPECT_ENGINE_ERROR(
                    commsched_engine_gather_parameter(engine, 0, 0, values, 17),
                    COMMSCHED_FAILED_PRECONDITION, HasSubstr("drain"));
                return "";
              }),
      "");
}

}  // namespace
}  // namespace commsched::engine

// What ends or skips a step on every rank: gradients that are not finite, and
// learning rates that differ.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

using Steps = std::vector<uint32_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct VerdictOutcome {
  std::string error;
  std::vector<float> weights;                  // Of rank 0.
  std::vector<commsched_engine_info_t> infos;  // By rank.
};

// Puts `bad` into one gradient of 'block1.weight' on rank 1.
ToyRank::Look Spoil(ToyRank& toy, int32_t rank, float bad) {
  return [&toy, rank, bad](uint32_t module) {
    if (rank != 1 || module != 2) return;
    static_cast<float*>(toy.gradients()[4])[3] = bad;
  };
}

// Runs the steps, of which `spoiled` has a gradient that is `bad`.
VerdictOutcome Train(const ToyRun& run, const Steps& steps,
                     uint32_t spoiled = ~0u, float bad = kNaN) {
  VerdictOutcome outcome;
  outcome.infos.resize(static_cast<size_t>(run.ranks),
                       commsched_engine_info_init());
  outcome.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
    if (std::string m = toy.Build(); !m.empty()) return m;
    for (uint32_t step : steps) {
      std::string m = toy.Step(
          step, step == spoiled ? Spoil(toy, rank, bad) : ToyRank::Look());
      if (!m.empty()) return m;
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(
        toy.engine(), &outcome.infos[static_cast<size_t>(rank)]));
    std::vector<float> weights;
    std::string m = toy.Weights(&weights);
    if (rank == 0) outcome.weights = weights;
    return m;
  });
  return outcome;
}

struct VerdictVariant {
  const char* name;
  void (*apply)(ToyRun& run);
};

void PrintTo(const VerdictVariant& variant, std::ostream* out) {
  *out << variant.name;
}

const VerdictVariant kVariants[] = {
    {"Clipped", [](ToyRun&) {}},
    {"CheckedSgdOfMicroBatches",
     [](ToyRun& run) {
       run.engine.clip_norm = 0;
       run.options.check_finite = 1;
       run.optimizer = commsched_sgd(0.9f, 0);
       run.options.micro_batches = 2;
       run.options.accumulate_bytes = 1;
     }},
    {"OffloadedBf16", [](ToyRun& run) {
       run.options.parameter_dtype = COMMSCHED_BF16;
       run.pools = std::make_shared<TestPools>();
     }}};

// (ZeRO stage, deterministic, variant)
class NonFiniteTest : public ::testing::TestWithParam<
                          std::tuple<uint32_t, bool, VerdictVariant>> {
 protected:
  static bool deterministic() { return std::get<1>(GetParam()); }
  static ToyRun Run() {
    ToyRun run;
    run.ranks = 3;
    run.options.zero_stage = std::get<0>(GetParam());
    run.plan.deterministic = deterministic() ? 1 : 0;
    std::get<2>(GetParam()).apply(run);
    return run;
  }
};

TEST_P(NonFiniteTest, AGradientOfOneRankSkipsTheStepOnAll) {
  const VerdictOutcome without = Train(Run(), {0, 2, 3});
  ASSERT_EQ(without.error, "");
  for (float bad : {kNaN, kInfinity}) {
    const VerdictOutcome outcome =
        Train(Run(), {0, 1, 2, 3}, /*spoiled=*/1, bad);
    ASSERT_EQ(outcome.error, "");
    for (const commsched_engine_info_t& info : outcome.infos) {
      EXPECT_EQ(info.skipped_steps, 1u);
      EXPECT_EQ(info.skipped_in_row, 0u);
    }
    // As if the step had never been, for AdamW's corrections, too.
    ASSERT_EQ(outcome.weights.size(), without.weights.size());
    for (size_t i = 0; i < without.weights.size(); ++i) {
      ASSERT_NEAR(outcome.weights[i], without.weights[i], 1e-2) << i;
    }
    if (deterministic()) {
      EXPECT_TRUE(SameBits(outcome.weights, without.weights));
    }
  }
}

TEST_P(NonFiniteTest, TooManyInARowFailEveryRankForGood) {
  ToyRun run = Run();
  run.engine.max_skipped_steps = 3;
  std::atomic<int> num_ranks = 0;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
        const ToyRank::Look spoil = Spoil(toy, rank, kNaN);
        if (std::string m = toy.Build(); !m.empty()) return m;
        // Two in a row, a good one, two in a row.
        for (uint32_t step = 0; step < 5; ++step) {
          std::string m = toy.Step(step, step == 2 ? ToyRank::Look() : spoil);
          if (!m.empty()) return m;
        }
        if (std::string m = toy.ForwardBackward(5, spoil); !m.empty()) return m;
        const auto message = AllOf(
            HasSubstr("gradients of 3 steps in a row, up to step 6"),
            HasSubstr("max_skipped_steps is 3"), HasSubstr("those of step 3"));
        // ABORTED where another rank was first to say so.
        commsched_engine_t* const engine = toy.engine();
        const commsched_status_t code = UpdateWith(engine, 0.01f);
        EXPECT_THAT(code,
                    AnyOf(COMMSCHED_FAILED_PRECONDITION, COMMSCHED_ABORTED));
        EXPECT_THAT(commsched_engine_last_error(), message);
        if (deterministic() || run.options.zero_stage == 0) {
          EXPECT_THAT(commsched_engine_last_error(),
                      HasSubstr("that of parameter 'block1.weight' was not"));
        }
        EXPECT_ENGINE_ERROR(commsched_engine_step_end(engine), code, message);
        EXPECT_ENGINE_ERROR(commsched_engine_step_begin(engine, nullptr), code,
                            message);
        EXPECT_ENGINE_ERROR(commsched_engine_drain(engine), code, message);
        if (code == COMMSCHED_ABORTED) return "";
        commsched_engine_info_t info = commsched_engine_info_init();
        EXPECT_EQ(commsched_engine_get_info(engine, &info), COMMSCHED_OK);
        EXPECT_EQ(info.skipped_steps, 5u);
        EXPECT_EQ(info.skipped_in_row, 3u);
        ++num_ranks;
        return "";
      });
  EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(StagesAndVariants, NonFiniteTest,
                         Combine(Values(0u, 1u, 2u, 3u), Values(true, false),
                                 ::testing::ValuesIn(kVariants)),
                         [](const auto& info) {
                           return "Zero" +
                                  std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "Deterministic"
                                                           : "InAnyOrder") +
                                  std::get<2>(info.param).name;
                         });

TEST(NonFiniteLimitTest, IsFiftyStepsInARow) {
  const ToyRun run;
  const std::string error =
      OnRanks(run, [](ToyRank& toy, int32_t rank) -> std::string {
        const ToyRank::Look spoil = Spoil(toy, rank, kInfinity);
        if (std::string m = toy.Build(); !m.empty()) return m;
        for (uint32_t step = 0; step < 49; ++step) {
          if (std::string m = toy.Step(step, spoil); !m.empty()) return m;
        }
        EXPECT_THAT(toy.Step(49, spoil), HasSubstr("50 steps in a row"));
        return "";
      });
  EXPECT_EQ(error, "");
}

TEST(NonFiniteLimitTest, ALossScaleSkipsLessOnItsWayDown) {
  ToyRun run;
  run.engine.loss_scale = 0x1p24f;
  run.engine.max_skipped_steps = 2;
  const std::string error =
      OnRanks(run, [](ToyRank& toy, int32_t rank) -> std::string {
        const ToyRank::Look spoil = Spoil(toy, rank, kInfinity);
        if (std::string m = toy.Build(); !m.empty()) return m;
        if (std::string m = toy.Step(0, spoil); !m.empty()) return m;
        EXPECT_THAT(toy.Step(1, spoil), HasSubstr("2 steps in a row"));
        return "";
      });
  EXPECT_EQ(error, "");
}

TEST(NonFiniteCheckpointTest, StoresSkippedStepsAndCountsThoseInARowAnew) {
  ToyRun run;
  run.engine.max_skipped_steps = 3;
  const TemporaryFolder folder;
  const auto two_skipped = [&](bool resumed) {
    return OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
      const ToyRank::Look spoil = Spoil(toy, rank, kNaN);
      if (std::string m = toy.Build(); !m.empty()) return m;
      if (resumed) {
        CheckpointHandle checkpoint;
        if (std::string m = OpenToyCheckpoint(folder.path(), &checkpoint);
            !m.empty()) {
          return m;
        }
        RETURN_MESSAGE_IF_ERROR(
            commsched_engine_checkpoint_load(checkpoint.get(), toy.engine()));
      }
      for (uint32_t step = 0; step < 2; ++step) {
        if (std::string m = toy.Step(step, spoil); !m.empty()) return m;
      }
      commsched_engine_info_t info = commsched_engine_info_init();
      RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(toy.engine(), &info));
      EXPECT_EQ(info.skipped_steps, resumed ? 4u : 2u);
      EXPECT_EQ(info.skipped_in_row, 2u);
      SaverHandle saver;
      if (resumed) return "";
      if (std::string m = CreateToySaver(toy, folder.path(), "run", &saver);
          !m.empty()) {
        return m;
      }
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_saver_save(saver.get(), nullptr, 0));
      return Message(commsched_engine_saver_wait(saver.get()));
    });
  };
  EXPECT_EQ(two_skipped(/*resumed=*/false), "");
  EXPECT_EQ(two_skipped(/*resumed=*/true), "");
}

TEST(NonFiniteNormTest, IsThereWithCheckFiniteAlone) {
  ToyRun run;
  run.steps = 1;
  const double clipped = RunToy(run).norm;
  run.engine.clip_norm = 0;
  run.options.check_finite = 1;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        if (std::string m = toy.Build(); !m.empty()) return m;
        if (std::string m = toy.Step(0); !m.empty()) return m;
        double norm = 0;
        RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(toy.engine(), &norm));
        EXPECT_EQ(norm, clipped);
        return "";
      });
  EXPECT_EQ(error, "");
}

// ---- Learning rates ---------------------------------------------------------

constexpr char kRates[] = "is 0.01 on rank 0 of the group and 0.02 on rank 2";

// By this rank, or by another one that was faster.
void ExpectFound(commsched_status_t code, const char* message) {
  EXPECT_THAT(code, AnyOf(COMMSCHED_FAILED_PRECONDITION, COMMSCHED_ABORTED));
  EXPECT_THAT(commsched_engine_last_error(),
              AllOf(HasSubstr(kRates), HasSubstr(message)));
}

bool HasOp(const ToyRun& run, const std::string& name) {
  const Planned planned = PlanOf(run);
  EXPECT_EQ(planned.error, "");
  return planned.plan.dump().find('"' + name + '"') != std::string::npos;
}

// (ZeRO stage, deterministic, with a norm)
class LearningRateTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, bool, bool>> {
 protected:
  static ToyRun Run() {
    const auto [stage, deterministic, norm] = GetParam();
    ToyRun run;
    run.ranks = 3;
    run.options.zero_stage = stage;
    run.engine.clip_norm = norm ? 1 : 0;
    run.plan.deterministic = deterministic ? 1 : 0;
    return run;
  }
  // A norm is exchanged, and rates with it.
  static bool WithNorm() {
    return std::get<0>(GetParam()) > 0 && std::get<2>(GetParam());
  }

  // One step with one rate, and one in which rank 2 has another one.
  static std::string Diverge(ToyRank& toy, int32_t rank) {
    if (std::string m = toy.Build(); !m.empty()) return m;
    if (std::string m = toy.Step(0); !m.empty()) return m;
    if (std::string m = toy.ForwardBackward(1); !m.empty()) return m;
    const commsched_status_t code =
        UpdateWith(toy.engine(), rank == 2 ? 0.02f : 0.01f);
    if (WithNorm()) {
      ExpectFound(code, "No weight was stepped");
      ExpectFound(commsched_engine_step_end(toy.engine()), "lr of step 2");
      return "";
    }
    if (code != COMMSCHED_OK) return commsched_engine_last_error();
    return Message(commsched_engine_step_end(toy.engine()));
  }
};

TEST_P(LearningRateTest, ThatDiffersIsAnErrorOnEveryRank) {
  const std::string error =
      OnRanks(Run(), [](ToyRank& toy, int32_t rank) -> std::string {
        if (std::string m = Diverge(toy, rank); !m.empty()) {
          EXPECT_THAT(m, HasSubstr(kRates));  // Another rank was faster.
          return "";
        }
        if (WithNorm()) return "";
        EXPECT_THAT(toy.Step(2),
                    AllOf(HasSubstr("lr of step 2"), HasSubstr(kRates),
                          HasSubstr("have been stepped")));
        ExpectFound(commsched_engine_step_end(toy.engine()), "lr of step 2");
        return "";
      });
  EXPECT_EQ(error, "");
}

TEST_P(LearningRateTest, ThatDiffersIsFoundByADrain) {
  const std::string error =
      OnRanks(Run(), [](ToyRank& toy, int32_t rank) -> std::string {
        if (std::string m = Diverge(toy, rank); !m.empty()) {
          EXPECT_THAT(m, HasSubstr(kRates));  // Another rank was faster.
          return "";
        }
        ExpectFound(commsched_engine_drain(toy.engine()), "lr of step 2");
        std::vector<float> weights;
        EXPECT_THAT(toy.Weights(&weights), HasSubstr(kRates));
        return "";
      });
  EXPECT_EQ(error, "");
}

// Rank 0 alone drains; the others go on with the next step.
TEST_P(LearningRateTest, ThatOneRankHasFoundEndsTheOthers) {
  const std::string error =
      OnRanks(Run(), [](ToyRank& toy, int32_t rank) -> std::string {
        if (std::string m = Diverge(toy, rank); !m.empty()) {
          EXPECT_THAT(m, HasSubstr(kRates));  // Another rank was faster.
          return "";
        }
        if (rank == 0) {
          ExpectFound(commsched_engine_drain(toy.engine()), "lr of step 2");
        } else {
          EXPECT_THAT(toy.Step(2), HasSubstr(kRates));
        }
        return "";
      });
  EXPECT_EQ(error, "");
}

TEST_P(LearningRateTest, TravelsWithTheNormWhereThatIsExchanged) {
  EXPECT_EQ(HasOp(Run(), "gather_learning_rates"), !WithNorm());
  ToyRun alone = Run();
  alone.ranks = 1;
  EXPECT_FALSE(HasOp(alone, "gather_learning_rates"));
}

INSTANTIATE_TEST_SUITE_P(StagesAndNorms, LearningRateTest,
                         Combine(Values(0u, 1u, 2u, 3u), Values(true, false),
                                 Values(true, false)));

TEST(LearningRateStepTest, MayChangeFromStepToStep) {
  ToyRun run;
  run.engine.clip_norm = 0;
  const std::string error =
      OnRanks(run, [](ToyRank& toy, int32_t) -> std::string {
        if (std::string m = toy.Build(); !m.empty()) return m;
        for (uint32_t step = 0; step < 4; ++step) {
          if (std::string m = toy.ForwardBackward(step); !m.empty()) return m;
          RETURN_MESSAGE_IF_ERROR(
              UpdateWith(toy.engine(), 0.01f * static_cast<float>(step)));
          RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(toy.engine()));
        }
        return Message(commsched_engine_drain(toy.engine()));
      });
  EXPECT_EQ(error, "");
}

// The backend that measures overhead.
TEST(LearningRateStepTest, IsNotComparedWhereNothingMoves) {
  for (float clip_norm : {0.0f, 1.0f}) {
    ToyRun run;
    run.options.zero_stage = 1;
    run.engine.clip_norm = clip_norm;
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = run.ranks;
    desc.backend = "null";
    commsched_world_t* world = nullptr;
    ASSERT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < run.ranks; ++rank) {
      threads.emplace_back([&, rank] {
        ToyRank toy(run, world, rank);
        EXPECT_EQ(toy.Build(), "");
        for (uint32_t step = 0; step < 3; ++step) {
          EXPECT_EQ(toy.Step(step), "");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    commsched_world_destroy(world);
  }
}

TEST(LearningRateStepTest, ComparingAllocatesNothingOnceWarm) {
  for (float clip_norm : {0.0f, 1.0f}) {
    ToyRun run;
    run.engine.clip_norm = clip_norm;
    EXPECT_EQ(
        AllocationsOnceWarm(
            run, [](ToyRank& toy, uint32_t step) { return toy.Step(step); }),
        0u);
  }
}

// ---- Groups -----------------------------------------------------------------

class NormGroupTest : public ::testing::Test {
 protected:
  // Rank 0 of 2 x 2 ranks, and its neighbours along "dp_shard".
  void SetUp() override {
    const uint64_t count = 100;
    uint32_t id = 0;
    ASSERT_EQ(commsched_model_add_module(model_.get(), "m", 0, 0, &id),
              COMMSCHED_OK);
    ASSERT_EQ(AddParameter(model_.get(), id, "w", &count, 1, &id),
              COMMSCHED_OK);
    commsched_world_desc_t world = commsched_world_desc_init();
    world.size = 4;
    ASSERT_EQ(commsched_world_create_inproc(&world, &world_), COMMSCHED_OK);
    ASSERT_EQ(commsched_context_create(world_, 0, &desc_.context),
              COMMSCHED_OK);
    const commsched_axis_t axes[] = {{"dp_shard", 2}, {"tp", 2}};
    commsched_mesh_t* mesh = nullptr;
    ASSERT_EQ(commsched_mesh_create(desc_.context, axes, 2, &mesh),
              COMMSCHED_OK);
    ASSERT_EQ(commsched_mesh_group(mesh, "dp_shard", &desc_.group),
              COMMSCHED_OK);
    commsched_mesh_destroy(mesh);
  }
  void TearDown() override {
    commsched_group_destroy(desc_.group);
    commsched_context_destroy(desc_.context);
    commsched_world_destroy(world_);
  }
  void ExpectRefused(const char* field) {
    commsched_engine_t* engine = nullptr;
    EXPECT_ENGINE_ERROR(
        CreateEngine(desc_, model_.get(), options_, &engine),
        COMMSCHED_INVALID_ARGUMENT,
        AllOf(HasSubstr(field), HasSubstr("group has 2 of 4 ranks"),
              HasSubstr("Set norm_group to the ranks")));
    EXPECT_EQ(engine, nullptr);
  }

  const ModelHandle model_ = NewModel();
  commsched_world_t* world_ = nullptr;
  commsched_engine_desc_t desc_ = commsched_engine_desc_init();
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
};

TEST_F(NormGroupTest, OfSomeRanksIsRefusedWithANorm) {
  options_.check_finite = 1;
  ExpectRefused("check_finite is 1");
  desc_.loss_scale = 1024;
  ExpectRefused("loss_scale is 1024");
  desc_.clip_norm = 1e-7f;
  ExpectRefused("clip_norm is 1e-07");
  desc_.clip_norm = 0.5f;
  ExpectRefused("clip_norm is 0.5");
}

// As far as this rank can tell: then it waits for the others, of which one has
// said that it will not come.
TEST_F(NormGroupTest, OfSomeRanksIsTakenWithoutANorm) {
  commsched_context_t* other = nullptr;
  ASSERT_EQ(commsched_context_create(world_, 1, &other), COMMSCHED_OK);
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  desc.context = other;
  commsched_engine_t* engine = nullptr;
  EXPECT_ENGINE_ERROR(commsched_engine_create(&desc, &engine),
                      COMMSCHED_INVALID_ARGUMENT, HasSubstr("group is NULL"));
  EXPECT_ENGINE_ERROR(CreateEngine(desc_, model_.get(), options_, &engine),
                      COMMSCHED_FAILED_PRECONDITION,
                      HasSubstr("rank 1 will not come"));
  commsched_context_destroy(other);
}

// They would count twice.
TEST_F(NormGroupTest, ARankThatIsInBothGroupsIsRefused) {
  desc_.clip_norm = 0.5f;
  desc_.norm_group = desc_.group;
  commsched_engine_t* engine = nullptr;
  EXPECT_ENGINE_ERROR(CreateEngine(desc_, model_.get(), options_, &engine),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("rank 2 is in group and in norm_group of rank "
                                "0"));
}

// ---- Memory of the norm -----------------------------------------------------

TEST(NormMemoryTest, IsTakenOnlyForWhatIsReadAndIsPartOfTheState) {
  struct Case {
    uint32_t stage;
    uint32_t deterministic;
    bool gathers;
  };
  for (const Case& c : {Case{0, 1, false},
                        {0, 0, false},
                        {2, 1, true},
                        {2, 0, false},
                        {3, 1, true}}) {
    ToyRun run;
    run.ranks = 4;
    run.steps = 1;
    run.options.zero_stage = c.stage;
    run.plan.deterministic = c.deterministic;
    const commsched_engine_info_t with = RunToy(run).info;
    run.engine.clip_norm = 0;
    const commsched_engine_info_t without = RunToy(run).info;
    EXPECT_EQ(without.norm_bytes, 0u);
    EXPECT_EQ(with.state_bytes - with.norm_bytes, without.state_bytes);
    uint64_t shard = 0;  // Blocks of 256 elements, as f64.
    shard = with.parameter_bytes / sizeof(float) / 256 * sizeof(double);
    if (c.stage > 0 && c.stage < 3) shard /= 4;
    EXPECT_GE(with.norm_bytes, shard);
    EXPECT_LE(with.norm_bytes, (c.gathers ? 5 : 1) * (shard + 64)) << c.stage;
  }
}

}  // namespace
}  // namespace commsched::engine

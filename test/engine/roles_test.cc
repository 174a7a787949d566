// Roles that exchange: the stages of a pipeline, planned together, in steps and
// evaluations, in one process and over a backend that connects processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "commsched/engine.h"
#include "commsched/engine_ops.h"
#include "commsched/step_plan.h"
#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pipeline_run.h"
#include "test/support/property.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::HasSubstr;

std::vector<std::string> PipelineBackends() {
#ifdef COMMSCHED_TEST_UCX
  return {"inproc", "ucx"};
#else
  return {"inproc"};
#endif
}

// (Stages and replicas, ZeRO stage, backend)
class RolesOfStepTest : public testing::TestWithParam<
                            std::tuple<Pipeline, uint32_t, std::string>> {
 protected:
  static Pipeline Run() {
    Pipeline run = std::get<0>(GetParam());
    run.zero_stage = std::get<1>(GetParam());
    run.backend = std::get<2>(GetParam());
    return run;
  }
};

TEST_P(RolesOfStepTest, StagesThatExchangeTrainAsOneModel) {
  ExpectPlainPipeline(Run());
}

TEST_P(RolesOfStepTest, StagesThatExchangeEvaluateAsOneModel) {
  Pipeline run = Run();
  run.evaluates = true;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, AnEvaluationOfSeveralForwardsIsOneOfAllStages) {
  Pipeline run = Run();
  run.evaluates = true;
  run.uneven_evaluations = true;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, StagesTakeTurnsWithSeveralMicroBatches) {
  Pipeline run = Run();
  run.micro_batches = 4;
  run.one_forward_one_backward = true;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, StagesClipByTheNormOfTheWholeModel) {
  for (const bool deterministic : {false, true}) {
    Pipeline run = Run();
    run.deterministic = deterministic;
    run.clip_norm = 0.0625f;
    EXPECT_GT(TrainPlainPipeline(run).norms.front(), run.clip_norm);
    ExpectPlainPipeline(run);
  }
}

TEST_P(RolesOfStepTest, AStageWhoseGradientIsNotFiniteHasAllSkipTheStep) {
  for (const float loss_scale : {0.0f, 1024.0f}) {
    Pipeline run = Run();
    run.check_finite = loss_scale == 0;
    run.loss_scale = loss_scale;
    run.evaluates = true;
    run.spoiled_step = 1;
    run.spoiling_rank = run.size() - 1;
    ExpectPlainPipeline(run);
  }
}

TEST_P(RolesOfStepTest, AStepThatARankOfAStageCancelsIsTakenByNone) {
  for (const float clip_norm : {0.0f, 0.0625f}) {
    Pipeline run = Run();
    run.micro_batches = 2;
    run.clip_norm = clip_norm;
    run.cancel_all = true;
    run.cancelled.step = 1;
    run.cancelled.rank = run.size() - 1;
    run.cancelled.passes = 1;
    ExpectPlainPipeline(run);
  }
}

TEST_P(RolesOfStepTest, AReplicaThatCancelsItsPartAddsNothing) {
  Pipeline run = Run();
  run.micro_batches = 2;
  run.cancelled.step = 1;
  run.cancelled.scope = COMMSCHED_CANCEL_LOCAL;
  run.cancelled.passes = 2;
  run.cancelled.in_pass = true;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, AStepCanHaveFewerMicroBatches) {
  Pipeline run = Run();
  run.micro_batches = 4;
  run.one_forward_one_backward = true;
  run.short_step = 1;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, AStageThatStepsWithAnotherRateIsNamedOnAllRanks) {
  for (const bool check_finite : {false, true}) {
    Pipeline run = Run();
    run.agrees = true;
    run.check_finite = check_finite;
    run.other_rate_rank = run.size() - 1;
    for (const std::string& message : RunPipeline(run).messages) {
      EXPECT_THAT(message, AllOf(HasSubstr("lr of step 1 is"),
                                 HasSubstr("0.5 on rank")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    PipelinesStagesAndBackends, RolesOfStepTest,
    Combine(testing::Values(Pipeline{2, 1}, Pipeline{3, 1}, Pipeline{2, 2}),
            testing::Values(0u, 2u, 3u), testing::ValuesIn(PipelineBackends())),
    [](const auto& info) {
      const Pipeline& run = std::get<0>(info.param);
      return std::to_string(run.stages) + "x" + std::to_string(run.replicas) +
             "_in_stage_" + std::to_string(std::get<1>(info.param)) + "_over_" +
             std::get<2>(info.param);
    });

// ---- Memory of roles --------------------------------------------------------

// Two stages of three modules, each with a bucket of its own.
class RolesArenaTest : public testing::Test {
 protected:
  RolesArenaTest() {
    core_.num_comm_lanes = 2;
    core_.priority = COMMSCHED_PRIORITY_OFF;
    core_.max_launches_in_flight = 1;
    options_.plan = &core_;
    options_.zero_stage = 3;
    options_.bucket_bytes = 1024;
    options_.micro_batches = 2;
    options_.accumulate_bytes = 1;
  }

  ModelHandle Describe(uint32_t stage, bool exchanges) {
    constexpr uint64_t kBlocks[2][3] = {{11, 2, 8}, {1, 1, 4}};
    ModelHandle model = NewModel();
    uint32_t id = 0;
    for (uint32_t m = 0; m < 3; ++m) {
      const std::string name = std::to_string(m);
      const uint64_t dims[] = {256 * kBlocks[stage][m]};
      Require(
          commsched_model_add_module(model.get(), name.c_str(), 1e5, 2e5, &id));
      Require(AddParameter(model.get(), m, name.c_str(), dims, 1, &id));
    }
    Require(commsched_model_add_group(model.get(), "pp", 2, &id));
    for (size_t a = 0; a < 2; ++a) {
      commsched_activation_desc_t desc = commsched_activation_desc_init();
      desc.name = a == 0 ? "y" : "dy";
      desc.dtype = COMMSCHED_F32;
      desc.count = kWide;
      desc.address = memory_[stage][a].data();
      Require(commsched_model_add_activation(model.get(), &desc, &id));
    }
    for (uint32_t m = 0; m < 3; ++m) {
      for (const bool backward : {false, true}) {
        const bool sends = (stage == 0) != backward;
        if (exchanges && !sends) AddHand(model.get(), m, sends, backward);
        AddOp(model.get(), m, sends, backward);
        if (exchanges && sends) AddHand(model.get(), m, sends, backward);
      }
    }
    return model;
  }

  static void AddHand(commsched_model_t* model, uint32_t module, bool sends,
                      bool backward) {
    commsched_module_collective_desc_t hand =
        commsched_module_collective_desc_init();
    hand.name = "hand";
    hand.kind = sends ? COMMSCHED_SEND : COMMSCHED_RECV;
    hand.group = 1;
    hand.backward = backward ? 1 : 0;
    hand.peer_offset = 1;
    commsched_access_t access = {};
    access.buffer = backward ? 1 : 0;
    access.mode = sends ? COMMSCHED_READ : COMMSCHED_WRITE;
    (sends ? hand.input : hand.output) = access;
    Require(commsched_model_add_collective(model, module, &hand));
  }

  // Makes what is sent then, or takes what was received.
  static void AddOp(commsched_model_t* model, uint32_t module, bool sends,
                    bool backward) {
    commsched_access_t access = {};
    access.buffer = backward ? 1 : 0;
    access.mode = sends ? COMMSCHED_WRITE : COMMSCHED_READ;
    commsched_module_op_desc_t op = commsched_module_op_desc_init();
    op.name = "compute";
    op.backward = backward ? 1 : 0;
    op.accesses = &access;
    op.num_accesses = 1;
    op.parameters = &module;
    op.num_parameters = 1;
    if (backward) {
      op.gradients = &module;
      op.num_gradients = 1;
    }
    uint32_t id = 0;
    Require(commsched_model_add_op(model, module, &op, &id));
  }

  static uint64_t ArenaOf(const commsched_step_plan_t* plan) {
    commsched_step_plan_info_t info = commsched_step_plan_info_init();
    Require(commsched_step_plan_get_info(plan, &info));
    return info.arena_bytes;
  }

  // Of the role that takes most, alone and without exchanges.
  uint64_t ArenaAlone() {
    uint64_t most = 0;
    for (uint32_t stage = 0; stage < 2; ++stage) {
      const ModelHandle model = Describe(stage, /*exchanges=*/false);
      most = std::max(
          most,
          ArenaOf(PlanModel(model.get(), /*num_ranks=*/2, options_).get()));
    }
    return most;
  }

  // Of both together, of that which takes most.
  commsched_status_t PlanTogether(uint64_t* out_arena) {
    const std::array<ModelHandle, 2> models = {Describe(0, true),
                                               Describe(1, true)};
    const std::array<uint32_t, 2> roles_of_pipe = {0, 1};
    const std::array<const uint32_t*, 2> role_of_member = {
        nullptr, roles_of_pipe.data()};
    std::array<commsched_step_plan_role_t, 2> roles;
    for (size_t i = 0; i < 2; ++i) {
      roles[i] = commsched_step_plan_role_init();
      roles[i].model = models[i].get();
      roles[i].num_ranks = 2;
      roles[i].role_of_member = role_of_member.data();
      roles[i].num_groups = 2;
    }
    std::array<commsched_step_plan_t*, 2> plans = {};
    const commsched_status_t code =
        commsched_step_plan_build(roles.data(), 2, &options_, plans.data());
    if (code != COMMSCHED_OK) return code;
    *out_arena = std::max(ArenaOf(plans[0]), ArenaOf(plans[1]));
    for (commsched_step_plan_t* plan : plans) commsched_step_plan_destroy(plan);
    return code;
  }

  commsched_plan_options_t core_ = commsched_plan_options_init();
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  std::array<std::array<std::array<float, kWide>, 2>, 2> memory_ = {};
};

// What one waits for of the other lives longer.
TEST_F(RolesArenaTest, IsLargerThanThatOfARoleAloneWhereItHasToBe) {
  const uint64_t alone = ArenaAlone();
  uint64_t together = 0;
  ASSERT_EQ(PlanTogether(&together), COMMSCHED_OK) << commsched_last_error();
  EXPECT_GT(together, alone);
  EXPECT_LE(together, 2 * alone);
}

TEST_F(RolesArenaTest, IsNoLargerThanTheLimitThatWasGiven) {
  core_.arena_bytes = ArenaAlone();
  uint64_t within = 0;
  ASSERT_EQ(PlanTogether(&within), COMMSCHED_OK) << commsched_last_error();
  EXPECT_LE(within, core_.arena_bytes);
}

// The lesser of both limits counts.
TEST_F(RolesArenaTest, IsNoLargerThanMaxLiveBytes) {
  const uint64_t alone = ArenaAlone();
  for (const uint64_t arena_bytes : {uint64_t{0}, 2 * alone}) {
    core_.arena_bytes = arena_bytes;
    options_.max_live_bytes = alone;
    uint64_t within = 0;
    ASSERT_EQ(PlanTogether(&within), COMMSCHED_OK) << commsched_last_error();
    EXPECT_LE(within, alone);
  }
}

TEST_F(RolesArenaTest, KeepsToEachLimitUntilOneIsRefusedWithWhatIsNeeded) {
  uint64_t limit = 2 * ArenaAlone();
  uint64_t within = 0;
  commsched_status_t code = COMMSCHED_OK;
  while (code == COMMSCHED_OK) {
    limit -= 256;
    options_.max_live_bytes = limit;
    code = PlanTogether(&within);
    if (code == COMMSCHED_OK) {
      ASSERT_LE(within, limit);
    }
  }
  const std::string message = commsched_last_error();
  EXPECT_EQ(code, COMMSCHED_RESOURCE_EXHAUSTED);
  EXPECT_THAT(message, HasSubstr("max_live_bytes " + std::to_string(limit) +
                                 " is too small"));
  EXPECT_THAT(message, HasSubstr("needs " + std::to_string(within)));
}

// What the stages decide together, and what happens in a step.
template <typename Below>
void DrawDecisions(const Below& below, Pipeline* run) {
  run->deterministic = below(2) == 0;
  run->clip_norm = below(2) == 0 ? 0.0625f : 0.0f;
  run->loss_scale = below(3) == 0 ? 256.0f : 0.0f;
  run->check_finite = below(3) == 0;
  run->cancel_all = below(3) == 0;
  run->agrees = below(3) == 0;
  const auto ranks = static_cast<uint64_t>(run->size());
  if (run->needs_norm() && below(2) == 0) {
    run->spoiled_step = below(kStageSteps);
    run->spoiling_rank = static_cast<int32_t>(below(ranks));
  }
  if (below(2) == 0) run->short_step = below(kStageSteps);
  CancelledStep& cancelled = run->cancelled;
  cancelled.rank = static_cast<int32_t>(below(ranks));
  // Until its last pass has ended. With sums of its own a rank can say that
  // all cancel: of a parameter so short the first replica has them.
  cancelled.passes = below(2);
  cancelled.in_pass = below(2) == 0;
  const bool has_sums = run->needs_norm() &&
                        cancelled.rank % run->replicas == 0 &&
                        (run->zero_stage > 0 || run->replicas == 1);
  const uint32_t which = below(3);
  if (which == 1) {
    cancelled.scope = COMMSCHED_CANCEL_LOCAL;
    cancelled.step = below(kStageSteps);
  } else if (which == 2 && (run->cancel_all || has_sums)) {
    cancelled.step = below(kStageSteps);
  }
  // Within such a step nobody might get to the gradient.
  if (cancelled.step == run->spoiled_step) run->spoiled_step = kNoStep;
}

// Any pipeline of up to 8 ranks.
TEST(RandomRolesTest, TrainAndEvaluateAsOneModel) {
  const int num_cases = test::PropertyCases(60);
  for (int i = 0; i < num_cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) {
      return static_cast<uint32_t>(random() % n);
    };
    Pipeline run;
    run.stages = 2 + static_cast<int32_t>(below(3));
    run.replicas =
        1 + static_cast<int32_t>(below(static_cast<uint64_t>(8 / run.stages)));
    run.zero_stage = below(4);
    run.micro_batches = 1 + below(5);
    run.one_forward_one_backward = below(2) == 0;
    run.evaluates = below(2) == 0;
    run.uneven_evaluations = run.evaluates && below(2) == 0;
    DrawDecisions(below, &run);
    ExpectPlainPipeline(run);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched::engine

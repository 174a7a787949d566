// Step plans through the C ABI: what they tell, and engines that are given one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "commsched/step_plan.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_rank.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

class PlannedStageTest : public testing::TestWithParam<uint32_t> {
 protected:
  static ToyRun RunOf(uint32_t stage) {
    ToyRun run;
    run.ranks = 3;
    run.options.zero_stage = stage;
    run.options.micro_batches = 2;
    return run;
  }
};

// Before there is a rank.
TEST_P(PlannedStageTest, APlanTellsWhatTheEngineHas) {
  const ToyRun run = RunOf(GetParam());
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    const StepPlanHandle plan =
        PlanModel(toy.model(), run.ranks, ToyStepOptions(run));
    commsched_step_plan_info_t planned = commsched_step_plan_info_init();
    RETURN_MESSAGE_IF_ERROR(commsched_step_plan_get_info(plan.get(), &planned));
    if (std::string message = toy.Build(); !message.empty()) return message;
    commsched_engine_info_t info = commsched_engine_info_init();
    RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(toy.engine(), &info));
    EXPECT_EQ(planned.num_parameters, info.num_parameters);
    EXPECT_EQ(planned.num_buckets, info.num_buckets);
    EXPECT_EQ(planned.num_passes, 2u * 2 * ToyModules().size());
    EXPECT_EQ(planned.num_ops, info.num_ops);
    EXPECT_EQ(planned.parameter_bytes, info.parameter_bytes);
    EXPECT_EQ(planned.optimizer_bytes, info.optimizer_bytes);
    EXPECT_EQ(planned.arena_bytes, info.arena_bytes);
    EXPECT_EQ(planned.accumulated_bytes, info.accumulated_bytes);
    EXPECT_EQ(planned.due_bytes, info.due_bytes);
    EXPECT_GT(planned.step_ns, 0);
    for (uint64_t bucket = 0; bucket <= info.num_buckets; ++bucket) {
      commsched_engine_bucket_info_t of_plan =
          commsched_engine_bucket_info_init();
      commsched_engine_bucket_info_t of_engine = of_plan;
      const commsched_status_t code =
          commsched_step_plan_get_bucket_info(plan.get(), bucket, &of_plan);
      EXPECT_EQ(code, commsched_engine_get_bucket_info(toy.engine(), bucket,
                                                       &of_engine));
      EXPECT_EQ(code,
                bucket < info.num_buckets ? COMMSCHED_OK : COMMSCHED_NOT_FOUND);
      EXPECT_EQ(std::memcmp(&of_plan, &of_engine, sizeof(of_plan)), 0);
      EXPECT_EQ(of_plan.num_reductions > 0, bucket < info.num_buckets);
    }
    EXPECT_NE(commsched_step_plan_core_plan(plan.get()), nullptr);
    EXPECT_EQ(commsched_step_plan_evaluation_plan(plan.get()) != nullptr,
              GetParam() == 3);
    return std::string();
  });
  EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Stages, PlannedStageTest, testing::Range(0u, 4u));

// From a little memory for gathered buckets to all of them, and back.
TEST(ReplanTest, AnotherPlanGoesOnWithTheSameState) {
  ToyRun run;
  run.options.zero_stage = 3;
  run.options.bucket_bytes = 4096;
  run.steps = 4;
  const ToyResult expected = RunToy(run);
  ASSERT_EQ(expected.error, "");
  std::vector<std::vector<float>> weights(2);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    if (std::string message = toy.Build(); !message.empty()) return message;
    for (uint32_t step = 0; step < run.steps; ++step) {
      commsched_step_plan_options_t options = ToyStepOptions(run);
      options.max_live_bytes = step % 2 == 0 ? UINT64_MAX : 0;
      RETURN_MESSAGE_IF_ERROR(commsched_engine_replan(
          toy.engine(), PlanModel(toy.model(), run.ranks, options).get()));
      if (std::string message = toy.Step(step); !message.empty()) {
        return message;
      }
    }
    return toy.Weights(&weights[static_cast<size_t>(rank)]);
  });
  ASSERT_EQ(error, "");
  for (const std::vector<float>& each : weights) {
    EXPECT_TRUE(SameBits(each, expected.weights[0]));
  }
}

TEST(ReplanTest, AnOrderRecordedLaterIsPlannedByTheOptionsOfTheLastPlan) {
  ToyRun run;
  run.options.zero_stage = 3;
  run.options.bucket_bytes = 4096;
  run.order = [](uint32_t step) {
    return step == 0 ? std::vector<uint32_t>{kEmbed, kBlock0, kBlock1, kHead}
                     : std::vector<uint32_t>{kHead, kEmbed, kBlock1, kBlock0};
  };
  const auto arena_bytes = [&](bool replans) {
    uint64_t bytes = 0;
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      RETURN_MESSAGE_IF_ERROR(toy.Build());
      RETURN_MESSAGE_IF_ERROR(toy.Step(0));
      if (replans) {
        commsched_step_plan_options_t options = ToyStepOptions(run);
        options.max_live_bytes = UINT64_MAX;
        RETURN_MESSAGE_IF_ERROR(commsched_engine_replan(
            toy.engine(), PlanModel(toy.model(), run.ranks, options).get()));
      }
      RETURN_MESSAGE_IF_ERROR(toy.Step(1));
      commsched_engine_info_t info = commsched_engine_info_init();
      RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(toy.engine(), &info));
      if (rank == 0) bytes = info.arena_bytes;
      return std::string();
    });
    EXPECT_EQ(error, "");
    return bytes;
  };
  EXPECT_GT(arena_bytes(/*replans=*/true), arena_bytes(/*replans=*/false));
}

TEST(ReplanTest, OtherBucketsThatAccumulateAreRefusedByName) {
  ToyRun run;
  run.ranks = 1;
  run.options.micro_batches = 2;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    if (std::string message = toy.Build(); !message.empty()) return message;
    commsched_step_plan_options_t options = ToyStepOptions(run);
    options.accumulate_bytes = 1;
    EXPECT_ENGINE_ERROR(
        commsched_engine_replan(toy.engine(),
                                PlanModel(toy.model(), 1, options).get()),
        COMMSCHED_INVALID_ARGUMENT,
        HasSubstr("replan with bucket 0 of 1792 elements with parameters 1, "
                  "reduced in each micro-batch; it is of 1792 elements with "
                  "parameters 1"));
    return std::string();
  });
  EXPECT_EQ(error, "");
}

TEST(ReplanTest, APlanForAnotherStateIsRefusedByName) {
  ToyRun run;
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    if (std::string message = toy.Build(); !message.empty()) return message;
    const auto expect = [&](const char* text, auto&& change) {
      commsched_step_plan_options_t options = ToyStepOptions(run);
      change(&options);
      EXPECT_ENGINE_ERROR(
          commsched_engine_replan(toy.engine(),
                                  PlanModel(toy.model(), 1, options).get()),
          COMMSCHED_INVALID_ARGUMENT, HasSubstr(text));
    };
    using Options = commsched_step_plan_options_t;
    expect("zero_stage 1; it is 2", [](Options* o) { o->zero_stage = 1; });
    expect("micro_batches 2; it is 1",
           [](Options* o) { o->micro_batches = 2; });
    expect("gradient_divisor 4.000000; it is 1.000000",
           [](Options* o) { o->gradient_divisor = 4; });
    expect("offloads_gradients 1; it is 0",
           [](Options* o) { o->offloads_gradients = 1; });
    expect("clips 0; it is 1", [](Options* o) { o->clips = 0; });
    expect("buckets:", [](Options* o) { o->bucket_bytes = 1 << 20; });
    commsched_optimizer_table_t other = run.optimizer;
    other.name = "other";
    expect("optimizer 'other'; it is 'adamw'",
           [&](Options* o) { o->optimizer = &other; });
    EXPECT_ENGINE_ERROR(commsched_engine_replan(toy.engine(), nullptr),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("step_plan is NULL"));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(toy.engine(), nullptr));
    EXPECT_ENGINE_ERROR(
        commsched_engine_replan(
            toy.engine(), PlanModel(toy.model(), 1, ToyStepOptions(run)).get()),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("replan was called"));
    return std::string();
  });
  EXPECT_EQ(error, "");
}

class StepPlanErrorTest : public testing::Test {
 protected:
  StepPlanErrorTest() {
    uint32_t id = 0;
    const uint64_t dims[] = {100};
    Require(commsched_model_add_module(model_.get(), "m", 0, 0, &id));
    Require(AddParameter(model_.get(), 0, "w", dims, 1, &id));
    role_.model = model_.get();
    role_.num_ranks = 2;
  }

  commsched_status_t Build(uint32_t num_roles = 1) {
    return commsched_step_plan_build(&role_, num_roles, &options_, &plan_);
  }

  const ModelHandle model_ = NewModel();
  commsched_step_plan_role_t role_ = commsched_step_plan_role_init();
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  commsched_step_plan_t* plan_ = nullptr;
};

TEST_F(StepPlanErrorTest, WhatCannotBePlannedIsNamed) {
  EXPECT_ENGINE_ERROR(commsched_step_plan_build(nullptr, 1, &options_, &plan_),
                      COMMSCHED_INVALID_ARGUMENT, HasSubstr("roles is NULL"));
  EXPECT_ENGINE_ERROR(commsched_step_plan_build(&role_, 1, nullptr, &plan_),
                      COMMSCHED_INVALID_ARGUMENT, HasSubstr("options is NULL"));
  EXPECT_ENGINE_ERROR(commsched_step_plan_build(&role_, 1, &options_, nullptr),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("out_plans is NULL"));
  EXPECT_ENGINE_ERROR(Build(0), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("num_roles is 0; it must be 1 to 512"));
  role_.num_ranks = 0;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("roles[0].num_ranks is 0"));
  role_.num_ranks = 2;
  options_.zero_stage = 4;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("zero_stage is 4; it must be 0 to 3"));
  options_.zero_stage = 2;
  options_.max_live_bytes = 1;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("max_live_bytes is 1 with zero_stage 2"));
  options_.max_live_bytes = 0;
  options_.reduce_dtype = COMMSCHED_I8;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("reduce_dtype is"));
  options_.reduce_dtype = COMMSCHED_F32;
  options_.bucket_merge = 3;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("bucket_merge is 3"));
  options_.bucket_merge = 0;
  options_.struct_size = 0;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("struct_size of options is 0"));
  const ModelHandle empty = NewModel();
  options_ = commsched_step_plan_options_init();
  role_.model = empty.get();
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_FAILED_PRECONDITION,
                      HasSubstr("the model has no parameters"));
  role_.model = nullptr;
  EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("roles[0].model is NULL"));
  EXPECT_EQ(plan_, nullptr);
}

// Two roles that have a group of both.
class RolesErrorTest : public testing::Test {
 protected:
  RolesErrorTest() {
    for (size_t i = 0; i < 2; ++i) {
      uint32_t id = 0;
      const uint64_t dims[] = {100};
      commsched_model_t* const model = models_[i].get();
      Require(commsched_model_add_module(model, "m", 0, 0, &id));
      Require(AddParameter(model, 0, "w", dims, 1, &id));
      Require(commsched_model_add_group(model, "pp", 2, &id));
      commsched_activation_desc_t activation = commsched_activation_desc_init();
      activation.name = "y";
      activation.dtype = COMMSCHED_F32;
      activation.count = memory_.size();
      activation.address = memory_.data();
      Require(commsched_model_add_activation(model, &activation, &id));
      commsched_module_collective_desc_t sum =
          commsched_module_collective_desc_init();
      sum.name = "sum";
      sum.kind = COMMSCHED_ALL_REDUCE;
      sum.group = 1;
      sum.input.mode = COMMSCHED_READ;
      sum.output.mode = COMMSCHED_WRITE;
      Require(commsched_model_add_collective(model, 0, &sum));
      roles_[i] = commsched_step_plan_role_init();
      roles_[i].model = model;
      roles_[i].num_ranks = 1;
      roles_[i].num_groups = 2;
      roles_[i].role_of_member = role_of_member_.data();
      roles_[i].role_of_norm_member = both_.data();
      roles_[i].num_norm_members = 2;
    }
    options_.norm_members = 2;
    options_.check_finite = 1;
  }

  commsched_status_t Build() {
    const commsched_status_t code =
        commsched_step_plan_build(roles_.data(), 2, &options_, plans_.data());
    if (code != COMMSCHED_OK) return code;
    for (commsched_step_plan_t* plan : plans_) {
      commsched_step_plan_destroy(plan);
    }
    plans_ = {};
    return code;
  }

  // After `change` of the second role.
  template <typename Change>
  void ExpectRefused(const char* text, const Change& change) {
    const commsched_step_plan_role_t was = roles_[1];
    change(&roles_[1]);
    EXPECT_ENGINE_ERROR(Build(), COMMSCHED_INVALID_ARGUMENT, HasSubstr(text));
    EXPECT_EQ(plans_[0], nullptr);
    roles_[1] = was;
    EXPECT_EQ(Build(), COMMSCHED_OK) << commsched_last_error();
  }

  using Role = commsched_step_plan_role_t;
  std::array<float, 8> memory_ = {};
  const std::array<uint32_t, 2> both_ = {0, 1};
  const std::array<const uint32_t*, 2> role_of_member_ = {nullptr,
                                                          both_.data()};
  const std::array<ModelHandle, 2> models_ = {NewModel(), NewModel()};
  std::array<Role, 2> roles_ = {};
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  std::array<commsched_step_plan_t*, 2> plans_ = {};
};

TEST_F(RolesErrorTest, GroupsThatAreNotThoseOfTheModelAreNamed) {
  ExpectRefused("roles[1].num_groups is 2; role_of_member is NULL",
                [](Role* role) { role->role_of_member = nullptr; });
  ExpectRefused(
      "roles[1].num_groups is 3; the model has groups 0 to 1, so it must be 2",
      [](Role* role) { role->num_groups = 3; });
  ExpectRefused(
      "roles[1].num_groups is 0; the model has groups 0 to 1, so it must be 2",
      [](Role* role) { role->num_groups = 0; });
  ExpectRefused("roles[1].reserved is 7; it must be 0",
                [](Role* role) { role->reserved = 7; });
}

TEST_F(RolesErrorTest, MembersOfTheNormThatAreNotRolesAreNamed) {
  ExpectRefused("roles[1].role_of_norm_member is NULL; with norm_members 2",
                [](Role* role) {
                  role->role_of_norm_member = nullptr;
                  role->num_norm_members = 0;
                });
  ExpectRefused("roles[1].num_norm_members is 2; role_of_norm_member is NULL",
                [](Role* role) { role->role_of_norm_member = nullptr; });
  ExpectRefused(
      "roles[1].num_norm_members is 1; norm_members of the options is 2",
      [](Role* role) { role->num_norm_members = 1; });
  const std::array<uint32_t, 2> missing = {1, 2};
  ExpectRefused(
      "roles[1].role_of_norm_member[1] is 2; num_roles is 2",
      [&](Role* role) { role->role_of_norm_member = missing.data(); });
  const std::array<uint32_t, 2> others = {0, 0};
  ExpectRefused("roles[1].role_of_norm_member has no entry that is 1",
                [&](Role* role) { role->role_of_norm_member = others.data(); });
  const std::array<uint32_t, 2> swapped = {1, 0};
  ExpectRefused(
      "consists of the roles [0 1] for role 0, but of [1 0] for role 1",
      [&](Role* role) { role->role_of_norm_member = swapped.data(); });
}

TEST_F(StepPlanErrorTest, AnEngineThatDoesNotFitItsPlanIsRefused) {
  ASSERT_EQ(Build(), COMMSCHED_OK);
  commsched_world_desc_t world_desc = commsched_world_desc_init();
  world_desc.size = 1;
  commsched_world_t* world = nullptr;
  commsched_context_t* context = nullptr;
  commsched_group_t* group = nullptr;
  const int32_t self[] = {0};
  Require(commsched_world_create_inproc(&world_desc, &world));
  Require(commsched_context_create(world, 0, &context));
  Require(commsched_group_create(context, "dp", self, 1, &group));
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  commsched_engine_t* engine = nullptr;
  desc.context = context;
  desc.group = group;
  desc.step_plan = plan_;
  const auto expect = [&](const char* text) {
    EXPECT_ENGINE_ERROR(commsched_engine_create(&desc, &engine),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr(text));
  };
  expect("the size of group is 1; the step plan is for 2");
  commsched_step_plan_destroy(plan_);
  role_.num_ranks = 1;
  options_.norm_members = 2;
  ASSERT_EQ(Build(), COMMSCHED_OK);
  desc.step_plan = plan_;
  expect("the size of norm_group is 1; the step plan is for 2");
  commsched_step_plan_destroy(plan_);
  options_.norm_members = 0;
  ASSERT_EQ(Build(), COMMSCHED_OK);
  desc.step_plan = plan_;
  desc.clip_norm = 1;
  expect("clip_norm is 1; the step plan is for no clipping");
  desc.clip_norm = 0;
  desc.loss_scale = 8;
  expect("loss_scale is 8; the step plan is for none");
  desc.loss_scale = 0;
  TestPool pool;
  const commsched_pool_t table = pool.table();
  desc.optimizer_pool = &table;
  expect("optimizer_pool is set; the step plan is for none");
  desc.optimizer_pool = nullptr;
  EXPECT_EQ(commsched_engine_create(&desc, &engine), COMMSCHED_OK);
  // The engine keeps it.
  commsched_step_plan_destroy(plan_);
  EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
  commsched_engine_destroy(engine);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}

}  // namespace
}  // namespace commsched::engine

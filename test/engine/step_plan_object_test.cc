// Step plans through the C ABI: what they tell, engines that are given one, and
// roles that exchange.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "commsched/checkpoint.h"
#include "commsched/engine_ops.h"
#include "commsched/step_plan.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_rank.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

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
    Require(commsched_model_add_module(model_.get(), "m", 0, 0, &id), "");
    Require(AddParameter(model_.get(), 0, "w", dims, 1, &id), "");
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

TEST_F(StepPlanErrorTest, AnEngineThatDoesNotFitItsPlanIsRefused) {
  ASSERT_EQ(Build(), COMMSCHED_OK);
  commsched_world_desc_t world_desc = commsched_world_desc_init();
  world_desc.size = 1;
  commsched_world_t* world = nullptr;
  commsched_context_t* context = nullptr;
  commsched_group_t* group = nullptr;
  const int32_t self[] = {0};
  Require(commsched_world_create_inproc(&world_desc, &world), "world");
  Require(commsched_context_create(world, 0, &context), "context");
  Require(commsched_group_create(context, "dp", self, 1, &group), "group");
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

// ---- Two roles --------------------------------------------------------------

constexpr uint64_t kWide = 64;  // Elements of what stages hand to each other.
constexpr float kStageRate = 0.1f;
constexpr uint32_t kStageSteps = 3;

float StageInput(int32_t replica, uint32_t step, uint64_t i) {
  return static_cast<float>(
             (i + 3 * step + 5 * static_cast<uint64_t>(replica)) % 7) /
         8;
}

// y = w0 x on the first stage, z = w1 y on the second, and the loss is the half
// of the sum of z^2. `replicas` of the pipeline share each stage's parameter.
void TrainPlain(int32_t replicas, std::vector<float>* w0,
                std::vector<float>* w1) {
  for (uint32_t step = 0; step < kStageSteps; ++step) {
    for (uint64_t i = 0; i < kWide; ++i) {
      float g0 = 0, g1 = 0;
      for (int32_t r = 0; r < replicas; ++r) {
        const float x = StageInput(r, step, i);
        const float y = (*w0)[i] * x;
        const float dz = (*w1)[i] * y;
        g1 += dz * y;
        g0 += dz * (*w1)[i] * x;
      }
      (*w0)[i] -= kStageRate * g0 / static_cast<float>(replicas);
      (*w1)[i] -= kStageRate * g1 / static_cast<float>(replicas);
    }
  }
}

// A stage of a pipeline of two: a module that sends its output on, or receives
// its input; and its gradient the other way.
class PipelineStage {
 public:
  PipelineStage(commsched_world_t* world, int32_t rank, int32_t replicas,
                uint32_t zero_stage)
      : stage_(rank / replicas), replica_(rank % replicas) {
    Require(commsched_context_create(world, rank, &context_), "context");
    std::vector<int32_t> shards;
    for (int32_t r = 0; r < replicas; ++r) {
      shards.push_back(stage_ * replicas + r);
    }
    Require(commsched_group_create(context_, "dp", shards.data(),
                                   static_cast<uint32_t>(replicas), &group_),
            "dp");
    const std::array<int32_t, 2> pipe = {replica_, replicas + replica_};
    Require(commsched_group_create(context_, "pp", pipe.data(), 2, &pipe_),
            "pp");
    // Each rank plans both.
    std::array<ModelHandle, 2> models = {DescribeStage(0), DescribeStage(1)};
    const std::array<uint32_t, 2> roles_of_pipe = {0, 1};
    const std::array<const uint32_t*, 2> role_of_member = {
        nullptr, roles_of_pipe.data()};
    std::array<commsched_step_plan_role_t, 2> roles;
    for (size_t i = 0; i < roles.size(); ++i) {
      roles[i] = commsched_step_plan_role_init();
      roles[i].model = models[i].get();
      roles[i].num_ranks = replicas;
      roles[i].role_of_member = role_of_member.data();
      roles[i].num_groups = 2;
    }
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    const commsched_optimizer_table_t sgd = commsched_sgd(0, 0);
    options.optimizer = &sgd;
    options.zero_stage = zero_stage;
    std::array<commsched_step_plan_t*, 2> plans = {};
    Require(commsched_step_plan_build(roles.data(), 2, &options, plans.data()),
            commsched_last_error());
    plan_.reset(plans[static_cast<size_t>(stage_)]);
    commsched_step_plan_destroy(plans[static_cast<size_t>(1 - stage_)]);
  }
  ~PipelineStage() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(pipe_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  PipelineStage(const PipelineStage&) = delete;
  PipelineStage& operator=(const PipelineStage&) = delete;

  std::string Train(std::vector<float>* out_weights) {
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.groups = &pipe_;
    desc.num_groups = 1;
    desc.step_plan = plan_.get();
    RETURN_MESSAGE_IF_ERROR(commsched_engine_create(&desc, &engine_));
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_set_parameter(engine_, 0, out_weights->data(), kWide));
    for (uint32_t step = 0; step < kStageSteps; ++step) {
      RETURN_MESSAGE_IF_ERROR(Step(step));
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(engine_));
    return Message(commsched_engine_gather_parameter(
        engine_, 0, /*root=*/0, replica_ == 0 ? out_weights->data() : nullptr,
        replica_ == 0 ? kWide : 0));
  }

 private:
  // The first sends what its op has made, the second receives before its op.
  ModelHandle DescribeStage(int32_t stage) {
    ModelHandle model = NewModel();
    uint32_t id = 0;
    const uint64_t dims[] = {kWide};
    Require(commsched_model_add_module(model.get(), "stage", 1e3, 2e3, &id),
            commsched_last_error());
    Require(AddParameter(model.get(), 0, "w", dims, 1, &id),
            commsched_last_error());
    Require(commsched_model_add_group(model.get(), "pp", 2, &id),
            commsched_last_error());
    for (size_t i = 0; i < 2; ++i) {
      commsched_activation_desc_t desc = commsched_activation_desc_init();
      desc.name = i == 0 ? "y" : "dy";
      desc.dtype = COMMSCHED_F32;
      desc.count = kWide;
      desc.address = handed_[i].data();
      Require(commsched_model_add_activation(model.get(), &desc, &id),
              commsched_last_error());
    }
    for (const uint32_t backward : {0u, 1u}) {
      const bool sends = (stage == 0) == (backward == 0);
      if (!sends) Hand(model.get(), COMMSCHED_RECV, backward, stage);
      commsched_module_op_desc_t op = commsched_module_op_desc_init();
      commsched_access_t access = {};
      access.buffer = backward;
      access.mode = sends ? COMMSCHED_WRITE : COMMSCHED_READ;
      const uint32_t parameter = 0;
      op.name = "compute";
      op.backward = backward;
      op.accesses = &access;
      op.num_accesses = 1;
      op.parameters = &parameter;
      op.num_parameters = 1;
      if (backward != 0) {
        op.gradients = &parameter;
        op.num_gradients = 1;
      }
      Require(commsched_model_add_op(model.get(), 0, &op, &id),
              commsched_last_error());
      if (sends) Hand(model.get(), COMMSCHED_SEND, backward, stage);
    }
    return model;
  }

  static void Hand(commsched_model_t* model, commsched_collective_t kind,
                   uint32_t backward, int32_t) {
    commsched_module_collective_desc_t desc =
        commsched_module_collective_desc_init();
    desc.name = "hand";
    desc.kind = kind;
    desc.group = 1;
    desc.backward = backward;
    desc.peer_offset = 1;
    commsched_access_t access = {};
    access.buffer = backward;
    access.mode = kind == COMMSCHED_SEND ? COMMSCHED_READ : COMMSCHED_WRITE;
    (kind == COMMSCHED_SEND ? desc.input : desc.output) = access;
    Require(commsched_model_add_collective(model, 0, &desc),
            commsched_last_error());
  }

  std::string Step(uint32_t step) {
    const void* values = nullptr;
    void* gradients = nullptr;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_begin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_address(engine_, 0, &values, &gradients));
    const auto* w = static_cast<const float*>(values);
    for (uint64_t i = 0; i < kWide && stage_ == 0; ++i) {
      handed_[0][i] = w[i] * StageInput(replica_, step, i);
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_end(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_begin(engine_, 1, 0));
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_address(engine_, 0, &values, &gradients));
    w = static_cast<const float*>(values);
    auto* const g = static_cast<float*>(gradients);
    for (uint64_t i = 0; i < kWide; ++i) {
      if (stage_ == 0) {
        g[i] += handed_[1][i] * StageInput(replica_, step, i);
      } else {
        const float dz = w[i] * handed_[0][i];
        g[i] += dz * handed_[0][i];
        handed_[1][i] = dz * w[i];
      }
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_end(engine_, 1, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine_, kStageRate));
    return Message(commsched_engine_step_end(engine_));
  }

  const int32_t stage_, replica_;
  // What goes from the first to the second, and its gradient.
  std::array<std::array<float, kWide>, 2> handed_ = {};
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_group_t* pipe_ = nullptr;
  StepPlanHandle plan_;
  commsched_engine_t* engine_ = nullptr;
};

class RolesOfStepTest
    : public testing::TestWithParam<std::tuple<int32_t, uint32_t>> {};

TEST_P(RolesOfStepTest, StagesThatExchangeTrainAsOneModel) {
  const auto [replicas, zero_stage] = GetParam();
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = 2 * replicas;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world), "world");
  std::vector<float> first(kWide), second(kWide);
  for (uint64_t i = 0; i < kWide; ++i) {
    first[i] = static_cast<float>(i % 5) / 4;
    second[i] = static_cast<float>(i % 3) / 2 - 0.5f;
  }
  std::vector<std::vector<float>> weights;
  std::vector<std::string> messages(static_cast<size_t>(desc.size));
  for (int32_t rank = 0; rank < desc.size; ++rank) {
    weights.push_back(rank < replicas ? first : second);
  }
  std::vector<std::thread> ranks;
  for (int32_t rank = 0; rank < desc.size; ++rank) {
    ranks.emplace_back([&, rank, replicas = replicas, stage = zero_stage] {
      PipelineStage pipeline(world, rank, replicas, stage);
      messages[static_cast<size_t>(rank)] =
          pipeline.Train(&weights[static_cast<size_t>(rank)]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  commsched_world_destroy(world);
  for (const std::string& message : messages) EXPECT_EQ(message, "");
  TrainPlain(replicas, &first, &second);
  for (uint64_t i = 0; i < kWide; ++i) {
    EXPECT_FLOAT_EQ(weights[0][i], first[i]) << i;
    EXPECT_FLOAT_EQ(weights[static_cast<size_t>(replicas)][i], second[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(ReplicasAndStages, RolesOfStepTest,
                         testing::Combine(testing::Values(1, 2),
                                          testing::Values(0u, 2u, 3u)));

}  // namespace
}  // namespace commsched::engine

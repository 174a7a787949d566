// The engine's errors: each names what was expected, and changes nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `body` on the only rank of a world of one, before it has an engine.
void OnOneRank(const std::function<void(ToyRank&)>& body) {
  ToyRun run;
  run.ranks = 1;
  EXPECT_EQ(OnRanks(run,
                    [&](ToyRank& toy, int32_t) {
                      body(toy);
                      return std::string();
                    }),
            "");
}

void OnOneEngine(
    const std::function<void(ToyRank&, commsched_engine_t*)>& body) {
  OnOneRank([&](ToyRank& toy) {
    ASSERT_EQ(toy.Build(), "");
    body(toy, toy.engine());
  });
}

TEST(EngineOrderTest, NothingIsAddedToItsModel) {
  OnOneEngine([](ToyRank& toy, commsched_engine_t*) {
    uint32_t id = 77;
    const uint64_t dim = 1;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_module(toy.model(), "late", 0, 0, &id),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("nothing can be added"));
    EXPECT_ENGINE_ERROR(AddParameter(toy.model(), 0, "late", &dim, 1, &id),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("nothing can be added"));
    EXPECT_ENGINE_ERROR(commsched_model_use_parameter(toy.model(), 3, 2),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("nothing can be added"));
    EXPECT_EQ(id, 77u);
  });
}

TEST(EngineOrderTest, AStepBeginsOnce) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_engine_step_begin(engine, nullptr),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected pass_begin of FORWARD of module 0 "
                                  "'embed', micro-batch 0"));
  });
}

TEST(EngineOrderTest, WhatIsReservedIsZero) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    commsched_step_desc_t desc = commsched_step_desc_init();
    desc.reserved = 1;
    EXPECT_ENGINE_ERROR(commsched_engine_step_begin(engine, &desc),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("desc.reserved is 1; it must be 0"));
    EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    const commsched_pass_t pass = {COMMSCHED_FORWARD, 0, 0, 3};
    EXPECT_ENGINE_ERROR(commsched_engine_pass_begin(engine, &pass),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("pass.reserved is 3; it must be 0"));
  });
}

TEST(EngineOrderTest, AnAbortNeedsNoReason) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    commsched_engine_abort(engine, nullptr);
    commsched_engine_abort(nullptr, nullptr);
    EXPECT_ENGINE_ERROR(commsched_engine_step_begin(engine, nullptr),
                        COMMSCHED_ABORTED, HasSubstr(""));
  });
}

TEST(EngineOrderTest, ModulesRunForwardInOrderAndBackwardInReverse) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        ForwardBegin(engine, 1, 0), COMMSCHED_FAILED_PRECONDITION,
        AllOf(
            HasSubstr(
                "pass_begin of FORWARD of module 1 'block0', micro-batch 0 was "
                "called"),
            HasSubstr("expected pass_begin of FORWARD of module 0 'embed'")));
    EXPECT_ENGINE_ERROR(ForwardBegin(engine, 0, 1),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("micro-batch 1 was called"));
    EXPECT_ENGINE_ERROR(
        ForwardEnd(engine, 0, 0), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("expected pass_begin of FORWARD of module 0"));
    ASSERT_EQ(ForwardBegin(engine, 0, 0), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(ForwardBegin(engine, 0, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected pass_end of FORWARD of module 0"));
    ASSERT_EQ(ForwardEnd(engine, 0, 0), COMMSCHED_OK);
    for (uint32_t m = 1; m < 4; ++m) {
      ASSERT_EQ(ForwardBegin(engine, m, 0), COMMSCHED_OK);
      ASSERT_EQ(ForwardEnd(engine, m, 0), COMMSCHED_OK);
    }
    EXPECT_ENGINE_ERROR(
        BackwardBegin(engine, 0, 0), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("expected pass_begin of BACKWARD of module 3 'head'"));
    EXPECT_ENGINE_ERROR(
        UpdateWith(engine, 0.1f), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("expected pass_begin of BACKWARD of module 3"));
  });
}

TEST(EngineOrderTest, AnEvaluationIsAForwardOfEveryModule) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    EXPECT_ENGINE_ERROR(commsched_engine_evaluation_end(engine),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected step_begin"));
    ASSERT_EQ(commsched_engine_evaluation_begin(engine), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        commsched_engine_evaluation_begin(engine),
        COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("expected pass_begin of FORWARD of module 0"));
    for (uint32_t m = 0; m < 4; ++m) {
      EXPECT_ENGINE_ERROR(
          commsched_engine_evaluation_end(engine),
          COMMSCHED_FAILED_PRECONDITION,
          HasSubstr(std::string("expected pass_begin of FORWARD of module ") +
                    std::to_string(m)));
      ASSERT_EQ(ForwardBegin(engine, m, 0), COMMSCHED_OK);
      float value = 0;
      const uint64_t one = 1;
      EXPECT_ENGINE_ERROR(
          commsched_engine_set_parameter_range(engine, 0, 0, &value, one),
          COMMSCHED_FAILED_PRECONDITION,
          HasSubstr("expected pass_end of FORWARD"));
      ASSERT_EQ(ForwardEnd(engine, m, 0), COMMSCHED_OK);
    }
    EXPECT_ENGINE_ERROR(BackwardBegin(engine, 3, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected evaluation_end"));
    EXPECT_ENGINE_ERROR(UpdateWith(engine, 0.1f), COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected evaluation_end"));
    EXPECT_ENGINE_ERROR(commsched_engine_step_begin(engine, nullptr),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected evaluation_end"));
    ASSERT_EQ(commsched_engine_evaluation_end(engine), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
  });
}

TEST(EngineOrderTest, APartOfAParameterLiesWithinIt) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    const float values[2] = {1, 2};
    EXPECT_EQ(commsched_engine_set_parameter_range(engine, 0, 15, values, 2),
              COMMSCHED_OK);
    for (uint64_t offset : {uint64_t{16}, uint64_t{18}, UINT64_MAX}) {
      EXPECT_ENGINE_ERROR(
          commsched_engine_set_parameter_range(engine, 0, offset, values, 2),
          COMMSCHED_INVALID_ARGUMENT,
          AllOf(HasSubstr(std::string("'head.norm', 2 elements from ") +
                          std::to_string(offset)),
                HasSubstr("it has 17")));
    }
  });
}

TEST(EngineOrderTest, TheStepEndsAfterTheOptimizer) {
  OnOneEngine([](ToyRank& toy, commsched_engine_t* engine) {
    ASSERT_EQ(toy.ForwardBackward(0), "");
    EXPECT_ENGINE_ERROR(commsched_engine_step_end(engine),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected update"));
    EXPECT_ENGINE_ERROR(UpdateWith(engine, -1), COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("lr is -1"));
    ASSERT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_engine_drain(engine),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected step_end"));
    ASSERT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_engine_step_end(engine),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected step_begin"));
  });
}

TEST(EngineOrderTest, AfterAnErrorTheStepGoesOn) {
  OnOneEngine([](ToyRank& toy, commsched_engine_t* engine) {
    EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_FAILED_PRECONDITION);
    EXPECT_EQ(toy.Step(0), "");
    EXPECT_EQ(BackwardEnd(engine, 0, 0), COMMSCHED_FAILED_PRECONDITION);
    EXPECT_EQ(toy.Step(1), "");
  });
}

TEST(EngineParametersTest, AreReadAndWrittenOnlyWhenDrained) {
  OnOneEngine([](ToyRank& toy, commsched_engine_t* engine) {
    std::vector<float> values(17, 2.5f);
    ASSERT_EQ(commsched_engine_set_parameter(engine, 0, values.data(), 17),
              COMMSCHED_OK);
    ASSERT_EQ(toy.Step(0), "");
    EXPECT_ENGINE_ERROR(
        commsched_engine_get_parameter(engine, 0, values.data(), 17),
        COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("get_parameter was called after step 1 without a drain"));
    EXPECT_ENGINE_ERROR(
        commsched_engine_set_parameter(engine, 0, values.data(), 17),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("without a drain"));
    ASSERT_EQ(commsched_engine_drain(engine), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_get_parameter(engine, 0, values.data(), 17),
              COMMSCHED_OK);
    EXPECT_NE(values[0], 2.5f);
  });
}

TEST(EngineParametersTest, SetValuesAreReadBack) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    const std::vector<float> in(64, 2.5f);
    std::vector<float> out(64);
    ASSERT_EQ(commsched_engine_set_parameter(engine, 3, in.data(), 64),
              COMMSCHED_OK);
    ASSERT_EQ(commsched_engine_get_parameter(engine, 3, out.data(), 64),
              COMMSCHED_OK);
    EXPECT_EQ(out, in);
  });
}

TEST(EngineParametersTest, AreNamedInErrors) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    float value = 0;
    EXPECT_ENGINE_ERROR(
        commsched_engine_get_parameter(engine, 3, &value, 1),
        COMMSCHED_INVALID_ARGUMENT,
        AllOf(HasSubstr("'block0.bias' with 1 element"), HasSubstr("64")));
    EXPECT_ENGINE_ERROR(commsched_engine_get_parameter(engine, 6, &value, 1),
                        COMMSCHED_NOT_FOUND,
                        HasSubstr("parameter 6; there are 6"));
  });
}

TEST(EngineNormTest, NeedsClippingAndAStep) {
  OnOneEngine([](ToyRank&, commsched_engine_t* engine) {
    double norm = -1;
    EXPECT_ENGINE_ERROR(commsched_engine_norm(engine, &norm),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("before the first step"));
    EXPECT_EQ(norm, -1);
  });
  ToyRun run;
  run.engine.clip_norm = 0;
  EXPECT_EQ(OnRanks(run,
                    [](ToyRank& toy, int32_t) {
                      RETURN_MESSAGE_IF_ERROR(toy.Build());
                      double norm = 0;
                      EXPECT_ENGINE_ERROR(
                          commsched_engine_norm(toy.engine(), &norm),
                          COMMSCHED_FAILED_PRECONDITION,
                          HasSubstr("no norm is computed"));
                      return std::string();
                    }),
            "");
}

TEST(EngineRegistrationTest, RefusesWhatItCannotTrain) {
  OnOneRank([](ToyRank& toy) {
    uint32_t id = 77;
    const uint64_t dims[] = {4};
    const uint64_t huge[] = {uint64_t{1} << 39, 4};
    const uint64_t wraps[] = {uint64_t{1} << 32, uint64_t{1} << 32};
    EXPECT_ENGINE_ERROR(
        commsched_model_add_module(toy.model(), "embed", 0, 0, &id),
        COMMSCHED_ALREADY_EXISTS, HasSubstr("'embed'"));
    EXPECT_ENGINE_ERROR(commsched_model_add_module(toy.model(), "", 0, 0, &id),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("name"));
    EXPECT_ENGINE_ERROR(
        commsched_model_add_module(toy.model(), "m", -1, 0, &id),
        COMMSCHED_INVALID_ARGUMENT, HasSubstr("forward_flops"));
    EXPECT_ENGINE_ERROR(AddParameter(toy.model(), 9, "p", dims, 1, &id),
                        COMMSCHED_NOT_FOUND,
                        HasSubstr("module 9; there are 4"));
    EXPECT_ENGINE_ERROR(AddParameter(toy.model(), 0, "p", nullptr, 1, &id),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("'p' has 1 dims, which are NULL"));
    EXPECT_ENGINE_ERROR(AddParameter(toy.model(), 0, "p", huge, 2, &id),
                        COMMSCHED_OUT_OF_RANGE, HasSubstr("2^40"));
    EXPECT_ENGINE_ERROR(AddParameter(toy.model(), 0, "p", wraps, 2, &id),
                        COMMSCHED_OUT_OF_RANGE, HasSubstr("2^40"));
    EXPECT_ENGINE_ERROR(AddParameter(toy.model(), 0, "head.norm", dims, 1, &id),
                        COMMSCHED_ALREADY_EXISTS, HasSubstr("'head.norm'"));
    EXPECT_EQ(id, 77u);
  });
}

TEST(EngineRegistrationTest, TiedParametersComeFromEarlierModules) {
  OnOneRank([](ToyRank& toy) {
    EXPECT_ENGINE_ERROR(
        commsched_model_use_parameter(toy.model(), 0, 2),
        COMMSCHED_INVALID_ARGUMENT,
        AllOf(HasSubstr("'embed'"), HasSubstr("the later module 'block0'")));
    EXPECT_ENGINE_ERROR(commsched_model_use_parameter(toy.model(), 3, 1),
                        COMMSCHED_ALREADY_EXISTS, HasSubstr("already"));
    EXPECT_ENGINE_ERROR(commsched_model_use_parameter(toy.model(), 3, 60),
                        COMMSCHED_NOT_FOUND, HasSubstr("parameter 60"));
  });
}

// A context and a group of one rank, and a model of one parameter.
class EngineCreateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    commsched_world_desc_t world = commsched_world_desc_init();
    world.size = 1;
    const int32_t rank = 0;
    ASSERT_EQ(commsched_world_create_inproc(&world, &world_), COMMSCHED_OK);
    ASSERT_EQ(commsched_context_create(world_, 0, &desc_.context),
              COMMSCHED_OK);
    ASSERT_EQ(commsched_group_create(desc_.context, "dp_shard", &rank, 1,
                                     &desc_.group),
              COMMSCHED_OK);
    AddOne(100);
  }
  void TearDown() override {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(desc_.group);
    commsched_context_destroy(desc_.context);
    commsched_world_destroy(world_);
  }

  // A module, and a parameter of so many elements.
  void AddOne(uint64_t count) {
    uint32_t id = 0;
    const std::string name = "m" + std::to_string(count);
    ASSERT_EQ(commsched_model_add_module(model_.get(), name.c_str(), 0, 0, &id),
              COMMSCHED_OK);
    ASSERT_EQ(AddParameter(model_.get(), id, name.c_str(), &count, 1, &id),
              COMMSCHED_OK);
  }
  commsched_status_t Plan(const commsched_step_plan_options_t& options) {
    return TryPlan(model_.get(), 1, options, &plan_);
  }
  commsched_status_t Create() {
    return CreateEngine(desc_, model_.get(), options_, &engine_);
  }

  commsched_world_t* world_ = nullptr;
  commsched_engine_desc_t desc_ = commsched_engine_desc_init();
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  const ModelHandle model_ = NewModel();
  StepPlanHandle plan_;
  commsched_engine_t* engine_ = nullptr;
};

TEST_F(EngineCreateTest, ChecksEveryField) {
  struct Case {
    void (*spoil)(commsched_engine_desc_t&);
    commsched_status_t code;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& d) { d.context = nullptr; }, COMMSCHED_INVALID_ARGUMENT,
       "context is NULL"},
      {[](auto& d) { d.group = nullptr; }, COMMSCHED_INVALID_ARGUMENT,
       "group is NULL"},
      {[](auto& d) { d.step_plan = nullptr; }, COMMSCHED_INVALID_ARGUMENT,
       "step_plan is NULL"},
      {[](auto& d) { d.num_groups = 1; }, COMMSCHED_INVALID_ARGUMENT,
       "groups is NULL"},
      {[](auto& d) {
         static commsched_group_t* const groups[] = {d.group, nullptr};
         d.groups = groups;
         d.num_groups = 2;
       },
       COMMSCHED_INVALID_ARGUMENT, "groups[1] is NULL"},
      {[](auto& d) { d.loss_scale = 3; }, COMMSCHED_INVALID_ARGUMENT,
       "loss_scale is 3"},
      {[](auto& d) { d.loss_scale = 0x1p25f; }, COMMSCHED_INVALID_ARGUMENT,
       "power of two from 1 to 2^24"},
      {[](auto& d) { d.loss_scale = 0.5f; }, COMMSCHED_INVALID_ARGUMENT,
       "loss_scale is 0.5"},
      {[](auto& d) { d.clip_norm = -1; }, COMMSCHED_INVALID_ARGUMENT,
       "clip_norm is -1"},
      {[](auto& d) { d.weight_decay = 0.0f / 0.0f; },
       COMMSCHED_INVALID_ARGUMENT, "weight_decay"},
      {[](auto& d) { d.launch_timeout_ns = -5; }, COMMSCHED_INVALID_ARGUMENT,
       "launch_timeout_ns is -5"},
      {[](auto& d) { d.struct_size = 0; }, COMMSCHED_INVALID_ARGUMENT,
       "struct_size of desc is 0"},
      {[](auto& d) { d.struct_size = 4097; }, COMMSCHED_INVALID_ARGUMENT,
       "struct_size of desc is 4097, not a multiple of 8 in 8..4096"},
  };
  options_.clips = options_.scales_loss = 1;
  ASSERT_EQ(Plan(options_), COMMSCHED_OK);
  desc_.step_plan = plan_.get();
  desc_.loss_scale = 1;
  for (const Case& c : cases) {
    commsched_engine_desc_t desc = desc_;
    c.spoil(desc);
    EXPECT_ENGINE_ERROR(commsched_engine_create(&desc, &engine_), c.code,
                        HasSubstr(c.message));
    EXPECT_EQ(engine_, nullptr);
  }
  EXPECT_EQ(commsched_engine_create(&desc_, &engine_), COMMSCHED_OK);
}

TEST_F(EngineCreateTest, AStepPlanChecksEveryOption) {
  struct Case {
    void (*spoil)(commsched_step_plan_options_t&);
    commsched_status_t code;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& d) { d.max_live_bytes = 5; }, COMMSCHED_INVALID_ARGUMENT,
       "max_live_bytes is 5 with zero_stage 0"},
      {[](auto& d) { d.persist_below = 6; }, COMMSCHED_INVALID_ARGUMENT,
       "persist_below is 6 with zero_stage 0"},
      {[](auto& d) { d.prefetch_bytes = 7; }, COMMSCHED_INVALID_ARGUMENT,
       "prefetch_bytes is 7 with zero_stage 0"},
      {[](auto& d) { d.zero_stage = 4; }, COMMSCHED_INVALID_ARGUMENT,
       "zero_stage is 4"},
      {[](auto& d) { d.parameter_dtype = COMMSCHED_F64; },
       COMMSCHED_INVALID_ARGUMENT, "parameter_dtype is 1"},
      {[](auto& d) { d.reduce_dtype = 99; }, COMMSCHED_INVALID_ARGUMENT,
       "reduce_dtype is 99"},
      {[](auto& d) { d.clips = 2; }, COMMSCHED_INVALID_ARGUMENT,
       "clips is 2; it must be 0 to 1"},
      {[](auto& d) { d.uneven_evaluations = 7; }, COMMSCHED_INVALID_ARGUMENT,
       "uneven_evaluations is 7"},
      {[](auto& d) { d.reserved = 1; }, COMMSCHED_INVALID_ARGUMENT,
       "reserved is 1; it must be 0"},
      {[](auto& d) { d.norm_members = 1u << 31; }, COMMSCHED_INVALID_ARGUMENT,
       "norm_members is 2147483648; it must be 0 to 2147483647"},
      {[](auto& d) { d.option_sets = 65537; }, COMMSCHED_INVALID_ARGUMENT,
       "option_sets is 65537; it must be 0 to 65536"},
      {[](auto& d) {
         static const auto table = commsched_optimizer_table_init();
         d.optimizer = &table;
       },
       COMMSCHED_INVALID_ARGUMENT, "optimizer is called NULL"},
      {[](auto& d) {
         static const auto table = commsched_sgd(1, 0);
         d.optimizer = &table;
       },
       COMMSCHED_INVALID_ARGUMENT, "momentum of optimizer 'sgd' is 1"},
      {[](auto& d) {
         static const auto table = commsched_sgd(0, 1);
         d.optimizer = &table;
       },
       COMMSCHED_INVALID_ARGUMENT,
       "nesterov of optimizer 'sgd' is 1, and its momentum is 0"},
      {[](auto& d) {
         static const auto table = commsched_adamw(1, 0.95f, 1e-8f);
         d.optimizer = &table;
       },
       COMMSCHED_INVALID_ARGUMENT, "beta1 of optimizer 'adamw' is 1"},
      {[](auto& d) {
         static const auto table = commsched_adamw(0.9f, 0.95f, -1);
         d.optimizer = &table;
       },
       COMMSCHED_INVALID_ARGUMENT, "epsilon of optimizer 'adamw' is -1"},
      {[](auto& d) {
         static commsched_plan_options_t plan = {};
         d.plan = &plan;
       },
       COMMSCHED_INVALID_ARGUMENT, "struct_size of plan is 0"},
      {[](auto& d) {
         static commsched_cost_profile_t profile = {};
         d.profile = &profile;
       },
       COMMSCHED_INVALID_ARGUMENT, "struct_size of profile is 0"},
      {[](auto& d) {
         static const int64_t cost_ns = 1;
         static commsched_cost_profile_t profile =
             commsched_cost_profile_init();
         profile.op_cost_ns = &cost_ns;
         d.profile = &profile;
       },
       COMMSCHED_INVALID_ARGUMENT, "profile.op_cost_ns is not NULL"},
  };
  for (const Case& c : cases) {
    commsched_step_plan_options_t options = options_;
    c.spoil(options);
    EXPECT_ENGINE_ERROR(Plan(options), c.code, HasSubstr(c.message));
    EXPECT_EQ(plan_, nullptr);
  }
}

TEST_F(EngineCreateTest, RefusesNulls) {
  EXPECT_ENGINE_ERROR(commsched_engine_create(nullptr, &engine_),
                      COMMSCHED_INVALID_ARGUMENT, HasSubstr("desc is NULL"));
  EXPECT_ENGINE_ERROR(commsched_engine_create(&desc_, nullptr),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("out_engine is NULL"));
  EXPECT_ENGINE_ERROR(commsched_engine_step_begin(nullptr, nullptr),
                      COMMSCHED_INVALID_ARGUMENT, HasSubstr("engine is NULL"));
  commsched_engine_destroy(nullptr);
}

TEST_F(EngineCreateTest, AnUnknownPlanOptionIsRefused) {
  commsched_step_plan_options_t options = options_;
  struct {
    commsched_plan_options_t known = commsched_plan_options_init();
    uint64_t newer = 1;
  } plan;
  plan.known.struct_size = sizeof(plan);
  options.plan = &plan.known;
  EXPECT_ENGINE_ERROR(Plan(options), COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("no more fields"));
  plan.newer = 0;
  EXPECT_EQ(Plan(options), COMMSCHED_OK);
}

TEST_F(EngineCreateTest, APluginThatIsNotThereIsNamed) {
  commsched_step_plan_options_t options = options_;
  commsched_plan_options_t plan = commsched_plan_options_init();
  options.plan = &plan;
  for (const char** name : {&plan.policy, &plan.codec, &plan.backend}) {
    *name = "no-such-plugin-of-this-name";
    EXPECT_ENGINE_ERROR(Plan(options), COMMSCHED_NOT_FOUND,
                        HasSubstr("'no-such-plugin-of-this-name'"));
    *name = nullptr;
  }
}

TEST_F(EngineCreateTest, MoreMicroBatchesThanCanBePlannedAreRefused) {
  options_.micro_batches = 100'000'000;
  EXPECT_ENGINE_ERROR(
      Create(), COMMSCHED_OUT_OF_RANGE,
      AllOf(HasSubstr("micro_batches is 100000000: with 1 modules"),
            HasSubstr("at most 1048576")));
}

TEST_F(EngineCreateTest, AModelThatTheMachineCannotHoldIsRefused) {
  AddOne(uint64_t{1} << 39);
  // Parameters, gradients and two moments, of 4 bytes each: 2^39 x 16.
  EXPECT_ENGINE_ERROR(
      Create(), COMMSCHED_RESOURCE_EXHAUSTED,
      AllOf(HasSubstr("87960930"), HasSubstr("the machine has")));
}

TEST_F(EngineCreateTest, AnEngineNeedsNoneOfItsHandles) {
  ASSERT_EQ(commsched_trace_create(desc_.context, 1024, &desc_.trace),
            COMMSCHED_OK);
  ASSERT_EQ(Create(), COMMSCHED_OK);
  commsched_trace_destroy(desc_.trace);
  commsched_group_destroy(std::exchange(desc_.group, nullptr));
  commsched_context_destroy(std::exchange(desc_.context, nullptr));
  commsched_world_destroy(std::exchange(world_, nullptr));
  EXPECT_EQ(commsched_engine_step_begin(engine_, nullptr), COMMSCHED_OK);
  EXPECT_EQ(ForwardBegin(engine_, 0, 0), COMMSCHED_OK);
  EXPECT_EQ(ForwardEnd(engine_, 0, 0), COMMSCHED_OK);
  EXPECT_EQ(BackwardBegin(engine_, 0, 0), COMMSCHED_OK);
  EXPECT_EQ(BackwardEnd(engine_, 0, 0), COMMSCHED_OK);
  EXPECT_EQ(UpdateWith(engine_, 0.1f), COMMSCHED_OK);
  EXPECT_EQ(commsched_engine_step_end(engine_), COMMSCHED_OK);
}

TEST_F(EngineCreateTest, ANewEngineTellsOfItselfAndHasASession) {
  ASSERT_EQ(Create(), COMMSCHED_OK);
  commsched_engine_info_t info = commsched_engine_info_init();
  EXPECT_EQ(commsched_engine_get_info(engine_, &info), COMMSCHED_OK);
  EXPECT_EQ(info.num_parameters, 100u);
  EXPECT_NE(commsched_engine_plan(engine_), nullptr);
  EXPECT_NE(commsched_engine_session(engine_), nullptr);
}

TEST_F(EngineCreateTest, OneThatRecordsTheOrderHasNoSessionYet) {
  desc_.record_order = 1;
  ASSERT_EQ(Create(), COMMSCHED_OK);
  EXPECT_NE(commsched_engine_plan(engine_), nullptr);
  EXPECT_EQ(commsched_engine_session(engine_), nullptr);
}

TEST_F(EngineCreateTest, AnArenaThatIsTooSmallIsRefusedWithTheSizeThatWorks) {
  commsched_step_plan_options_t options = options_;
  options.zero_stage = 2;
  commsched_plan_options_t plan = commsched_plan_options_init();
  plan.arena_bytes = 64;
  options.plan = &plan;
  AddOne(1000);
  EXPECT_ENGINE_ERROR(Plan(options), COMMSCHED_RESOURCE_EXHAUSTED,
                      HasSubstr("least size that works is 5120 bytes"));
}

}  // namespace
}  // namespace commsched::engine

// What an engine makes of the model that it is created with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/exchange_model.h"
#include "test/engine/expect_error.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"
#include "test/support/rank_group.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kWeights = 100;

// Of all ranks of the world.
class EngineOfPlan {
 public:
  // `plan` is there until the engine is created.
  EngineOfPlan(commsched_world_t* world, int rank,
               const commsched_step_plan_t* plan)
      : plan_(plan) {
    Require(commsched_context_create(world, rank, &context_));
    std::vector<int32_t> all;
    for (int32_t i = 0; i < commsched_world_size(world); ++i) all.push_back(i);
    Require(commsched_group_create(context_, "dp", all.data(),
                                   static_cast<uint32_t>(all.size()), &group_));
  }
  ~EngineOfPlan() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  EngineOfPlan(const EngineOfPlan&) = delete;
  EngineOfPlan& operator=(const EngineOfPlan&) = delete;

  commsched_engine_t* get() { return engine_; }

  std::string Create() {
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.step_plan = plan_;
    return Message(commsched_engine_create(&desc, &engine_));
  }

  // Gradients of zeros.
  std::string Step() {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine_, 0.1f));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine_));
    return Message(commsched_engine_drain(engine_));
  }

 private:
  const commsched_step_plan_t* const plan_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_engine_t* engine_ = nullptr;
};

ModelHandle ModelOfOneParameter() {
  ModelHandle model = NewModel();
  uint32_t id = 0;
  Require(commsched_model_add_module(model.get(), "m", 0, 0, &id));
  Require(AddParameter(model.get(), 0, "w", &kWeights, 1, &id));
  return model;
}

StepPlanHandle PlanOfStage2(commsched_model_t* model, int ranks) {
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.zero_stage = 2;
  return PlanModel(model, ranks, options);
}

TEST(EngineModelTest, EnginesOfSeveralThreadsKeepOnePlanWithoutItsHandle) {
  for (const int ranks : {2, 3, 4}) {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = ranks;
    commsched_world_t* world = nullptr;
    ASSERT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
    StepPlanHandle plan = PlanOfStage2(ModelOfOneParameter().get(), ranks);
    std::vector<std::unique_ptr<EngineOfPlan>> engines;
    for (int rank = 0; rank < ranks; ++rank) {
      engines.push_back(
          std::make_unique<EngineOfPlan>(world, rank, plan.get()));
    }
    std::vector<std::string> messages(static_cast<size_t>(ranks));
    std::barrier created(ranks);
    RunRanks(ranks, [&](int rank) {
      const auto index = static_cast<size_t>(rank);
      messages[index] = engines[index]->Create();
      created.arrive_and_wait();
      if (rank == 0) plan.reset();
      if (messages[index].empty()) messages[index] = engines[index]->Step();
      engines[index].reset();
      return absl::OkStatus();
    });
    for (const std::string& message : messages) EXPECT_EQ(message, "");
    commsched_world_destroy(world);
  }
}

TEST(EngineModelTest, NothingIsAddedOnceAStepPlanIsMadeOfIt) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = 1;
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
  {
    const ModelHandle model = ModelOfOneParameter();
    uint32_t id = 0;
    EXPECT_EQ(AddParameter(model.get(), 0, "v", &kWeights, 1, &id),
              COMMSCHED_OK);
    const StepPlanHandle plan = PlanOfStage2(model.get(), 1);
    EngineOfPlan first(world, 0, plan.get());
    EXPECT_EQ(first.Create(), "");
    const std::vector<float> values(kWeights, 1);
    EXPECT_EQ(commsched_engine_set_parameter(first.get(), id, values.data(),
                                             kWeights),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(AddParameter(model.get(), 0, "u", &kWeights, 1, &id),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("a step plan is made of it"));
  }
  commsched_world_destroy(world);
}

// What modules exchange is compared with what the engine is given.
class EngineExchangesTest : public ::testing::Test {
 protected:
  void Create(commsched_status_t code, const char* text) {
    ExchangeRun run;
    run.dp = 1;
    run.sp = 1;
    EXPECT_EQ(OnExchangeRanks(run,
                              [&](ExchangeRank& rank, int32_t) {
                                add_(rank.model());
                                EXPECT_ENGINE_ERROR(rank.Create(), code,
                                                    HasSubstr(text));
                                return std::string();
                              }),
              "");
  }

  std::function<void(commsched_model_t*)> add_;
  uint32_t id_ = 0;
};

TEST_F(EngineExchangesTest, AGroupThatTheEngineIsNotGivenIsRefused) {
  add_ = [&](commsched_model_t* model) {
    EXPECT_EQ(commsched_model_add_group(model, "tp", 1, &id_), COMMSCHED_OK);
  };
  Create(COMMSCHED_INVALID_ARGUMENT, "num_groups is 1; the model has 2");
}

TEST_F(EngineExchangesTest, AnActivationWithoutMemoryIsRefused) {
  add_ = [&](commsched_model_t* model) {
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = "nowhere";
    desc.count = 4;
    EXPECT_EQ(commsched_model_add_activation(model, &desc, &id_), COMMSCHED_OK);
  };
  Create(COMMSCHED_INVALID_ARGUMENT, "activation 'nowhere' has no memory");
}

TEST_F(EngineExchangesTest, CountsThatDoNotFitTheEnginesGroupAreRefused) {
  add_ = [&](commsched_model_t* model) {
    commsched_module_collective_desc_t desc =
        commsched_module_collective_desc_init();
    const uint64_t counts[] = {1, 1};
    desc.name = "misfit";
    desc.kind = COMMSCHED_ALL_TO_ALL;
    desc.output.buffer = 1;
    desc.counts = counts;
    desc.num_counts = 2;
    EXPECT_EQ(
        commsched_model_add_collective(model, ExchangeRank::kMixModule, &desc),
        COMMSCHED_OK);
  };
  Create(COMMSCHED_INVALID_ARGUMENT, "misfit");
}

}  // namespace
}  // namespace commsched::engine

// An engine that goes on with the plan of another model: another list of
// passes, and all that such a model must have in common with the first.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "commsched/engine.h"
#include "commsched/engine_ops.h"
#include "test/engine/create_engine.h"
#include "test/engine/exchange_model.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/pass_lists.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

// ---- Another list of passes -------------------------------------------------

// Ranks, stage, accumulate_bytes, bucket_bytes.
class ReplanListTest : public ::testing::TestWithParam<
                           std::tuple<int32_t, uint32_t, uint64_t, uint64_t>> {
 protected:
  static ToyRun Run() {
    ToyRun run;
    run.ranks = std::get<0>(GetParam());
    run.options.zero_stage = std::get<1>(GetParam());
    run.options.accumulate_bytes = std::get<2>(GetParam());
    run.options.bucket_bytes = std::get<3>(GetParam());
    run.options.micro_batches = kListWindow;
    return run;
  }

  // The weights by rank, with another list before each step, or none.
  static std::vector<std::vector<float>> TrainWith(
      ToyRun run, const std::vector<PassList>& lists) {
    std::vector<std::vector<float>> weights(static_cast<size_t>(run.ranks));
    run.passes = lists.front();
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      RETURN_MESSAGE_IF_ERROR(toy.Build());
      for (uint32_t step = 0; step < lists.size(); ++step) {
        ToyRun next = run;
        next.passes = lists[step];
        if (step > 0) RETURN_MESSAGE_IF_ERROR(toy.Replan(next));
        RETURN_MESSAGE_IF_ERROR(toy.Step(step));
      }
      return toy.Weights(&weights[static_cast<size_t>(rank)]);
    });
    EXPECT_EQ(error, "");
    return weights;
  }

  static void ExpectPlainWeights(const std::vector<PassList>& lists) {
    ToyRun run = Run();
    run.steps = static_cast<uint32_t>(lists.size());
    const std::vector<float> expected = ReferenceWeights(run);
    for (const std::vector<float>& weights : TrainWith(run, lists)) {
      ASSERT_EQ(weights.size(), expected.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], expected[i], 1e-5) << i;
      }
    }
  }
};

TEST_P(ReplanListTest, GoesOnWithTheWeightsOfAPlainLoop) {
  ExpectPlainWeights({OneForwardOneBackward(),
                      GPipe(),
                      {},
                      ZeroBubble(),
                      OneForwardOneBackward()});
}

// Micro-batches come between each other in some of them, where gradients that
// are reduced in each have other memory.
TEST_P(ReplanListTest, TakesMemoryForGradientsAsItsListNeedsIt) {
  ExpectPlainWeights(
      {GPipe(), ModuleByModule(), Recomputing(), ModuleByModule(), {}});
}

// The memory of the plan that runs, no more.
TEST_P(ReplanListTest, KeepsAsMuchMemoryAsAnEngineThatBeganWithIt) {
  const auto bytes_of = [](const std::vector<PassList>& lists) {
    ToyRun run = Run();
    run.passes = lists.front();
    uint64_t bytes = 0;
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      RETURN_MESSAGE_IF_ERROR(toy.Build());
      for (size_t i = 1; i < lists.size(); ++i) {
        ToyRun next = run;
        next.passes = lists[i];
        RETURN_MESSAGE_IF_ERROR(toy.Replan(next));
      }
      commsched_engine_info_t info = commsched_engine_info_init();
      RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(toy.engine(), &info));
      if (rank == 0) bytes = info.state_bytes;
      return std::string();
    });
    EXPECT_EQ(error, "");
    return bytes;
  };
  EXPECT_EQ(bytes_of({GPipe(), ModuleByModule()}),
            bytes_of({ModuleByModule()}));
  EXPECT_EQ(bytes_of({ModuleByModule(), GPipe()}), bytes_of({GPipe()}));
}

INSTANTIATE_TEST_SUITE_P(
    RanksAndStages, ReplanListTest,
    ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Range(0u, 4u),
                       ::testing::Values(uint64_t{0}, uint64_t{1}),
                       ::testing::Values(uint64_t{4096}, uint64_t{1} << 20)));

// What the engine was given keeps to the order of the list.
TEST(ReplanTest, WithAListTheOrderOfModulesCannotBeRecorded) {
  ToyRun run;
  run.ranks = 1;
  run.options.micro_batches = kListWindow;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    RETURN_MESSAGE_IF_ERROR(toy.Build());
    ToyRun next = run;
    next.passes = GPipe();
    RETURN_MESSAGE_IF_ERROR(toy.Replan(next));
    EXPECT_ENGINE_ERROR(commsched_engine_record_order(toy.engine()),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("passes of a step were set"));
    RETURN_MESSAGE_IF_ERROR(toy.Step(0));
    RETURN_MESSAGE_IF_ERROR(toy.Replan(run));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_record_order(toy.engine()));
    return toy.Step(1);
  });
  EXPECT_EQ(error, "");
}

// ---- What another model must have in common ---------------------------------

// Two modules, of which the second has the first one's parameter, too, and
// exchanges something within.
struct ExchangingModel {
  double flops = 0;
  const char* second = "second";
  const char* group = "sp";
  const char* weight = "w";
  std::vector<uint64_t> dims = {8, 8};
  commsched_parameter_desc_t weights = commsched_parameter_desc_init();
  bool is_tied = true;
  bool recomputes = false;
  bool has_bias = false;
  const char* activation = "a";
  commsched_dtype_t dtype = COMMSCHED_F32;
  uint64_t count = 16;
  float* memory = nullptr;
  commsched_access_t read = {};
  commsched_module_collective_desc_t collective =
      commsched_module_collective_desc_init();
  bool adds_gradient = true;
  bool has_one_more_op = false;
  bool ops_in_order = true;
  bool has_one_more_group = false;
  bool has_one_more_activation = false;
  std::vector<commsched_pass_t> passes;

  explicit ExchangingModel(float* own_memory) : memory(own_memory) {
    read = On(0, COMMSCHED_READ);
    collective.name = "swap";
    collective.kind = COMMSCHED_ALL_REDUCE;
    collective.group = 1;
    collective.input = On(0, COMMSCHED_READ);
    collective.output = On(0, COMMSCHED_WRITE);
  }

  std::string AddTo(commsched_model_t* model) const {
    uint32_t id = 0;
    RETURN_MESSAGE_IF_ERROR(
        commsched_model_add_module(model, "first", flops, flops, &id));
    RETURN_MESSAGE_IF_ERROR(
        commsched_model_add_module(model, second, flops, flops, &id));
    RETURN_MESSAGE_IF_ERROR(commsched_model_add_group(model, group, 1, &id));
    if (has_one_more_group) {
      RETURN_MESSAGE_IF_ERROR(commsched_model_add_group(model, "tp", 1, &id));
    }
    commsched_parameter_desc_t desc = weights;
    desc.name = weight;
    desc.dims = dims.data();
    desc.num_dims = static_cast<uint32_t>(dims.size());
    RETURN_MESSAGE_IF_ERROR(commsched_model_add_parameter(model, &desc, &id));
    const uint64_t one[] = {5};
    RETURN_MESSAGE_IF_ERROR(AddParameter(model, 1, "v", one, 1, &id));
    if (has_bias) {
      RETURN_MESSAGE_IF_ERROR(AddParameter(model, 1, "bias", one, 1, &id));
    }
    if (is_tied) {
      RETURN_MESSAGE_IF_ERROR(commsched_model_use_parameter(model, 1, 0));
    }
    RETURN_MESSAGE_IF_ERROR(AddExchange(model));
    if (recomputes) {
      RETURN_MESSAGE_IF_ERROR(commsched_model_recompute(model, 0, 0));
    }
    return Message(
        commsched_model_set_passes(model, passes.data(), passes.size()));
  }

 private:
  std::string AddExchange(commsched_model_t* model) const {
    uint32_t id = 0;
    commsched_activation_desc_t of = commsched_activation_desc_init();
    of.name = activation;
    of.dtype = dtype;
    of.count = count;
    of.address = memory;
    RETURN_MESSAGE_IF_ERROR(commsched_model_add_activation(model, &of, &id));
    if (has_one_more_activation) {
      of.name = "more";
      of.address = memory + 64;
      RETURN_MESSAGE_IF_ERROR(commsched_model_add_activation(model, &of, &id));
    }
    if (!ops_in_order) RETURN_MESSAGE_IF_ERROR(AddOp(model, "add", true));
    RETURN_MESSAGE_IF_ERROR(AddOp(model, "make", false));
    RETURN_MESSAGE_IF_ERROR(
        commsched_model_add_collective(model, 1, &collective));
    if (has_one_more_op) RETURN_MESSAGE_IF_ERROR(AddOp(model, "use", false));
    if (ops_in_order) RETURN_MESSAGE_IF_ERROR(AddOp(model, "add", true));
    return "";
  }

  std::string AddOp(commsched_model_t* model, const char* name,
                    bool backward) const {
    const uint32_t v = 1;
    const commsched_access_t write = On(0, COMMSCHED_WRITE);
    commsched_module_op_desc_t desc = commsched_module_op_desc_init();
    desc.name = name;
    desc.accesses = backward ? &read : &write;
    desc.num_accesses = 1;
    desc.backward = backward ? 1 : 0;
    if (backward && adds_gradient) {
      desc.gradients = &v;
      desc.num_gradients = 1;
    }
    uint32_t id = 0;
    return Message(commsched_model_add_op(model, 1, &desc, &id));
  }
};

// One rank with an engine of the model.
class ReplanModelTest : public ::testing::Test {
 protected:
  ReplanModelTest() {
    commsched_world_desc_t world = commsched_world_desc_init();
    world.size = 1;
    Require(commsched_world_create_inproc(&world, &world_));
    Require(commsched_context_create(world_, 0, &context_));
    const int32_t self[] = {0};
    Require(commsched_group_create(context_, "dp", self, 1, &group_));
    Require(commsched_group_create(context_, "sp", self, 1, &sp_group_));
    EXPECT_EQ(first_.AddTo(model_.get()), "");
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.groups = &sp_group_;
    desc.num_groups = 1;
    Require(CreateEngine(desc, model_.get(), options_, &engine_));
  }
  ~ReplanModelTest() override {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(sp_group_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    commsched_world_destroy(world_);
  }

  commsched_status_t Replan(const ExchangingModel& next) {
    const ModelHandle model = NewModel();
    EXPECT_EQ(next.AddTo(model.get()), "");
    return commsched_engine_replan(engine_,
                                   PlanModel(model.get(), 1, options_).get());
  }

  // `change` makes another model of that of the engine.
  void ExpectRefused(const std::string& text,
                     const std::function<void(ExchangingModel*)>& change) {
    SCOPED_TRACE(text);
    ExchangingModel next(memory_.data());
    change(&next);
    EXPECT_ENGINE_ERROR(Replan(next), COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("engine: replan with " + text));
  }

  std::string Op(uint32_t op) {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_begin(engine_, op, 0));
    return Message(commsched_engine_op_end(engine_, op, 0));
  }

  std::string Step() {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 1, 0));
    RETURN_MESSAGE_IF_ERROR(Op(0));
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, 1, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 1, 0));
    RETURN_MESSAGE_IF_ERROR(Op(1));
    RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, 1, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine_, 0.1f));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine_));
    return Message(commsched_engine_drain(engine_));
  }

  std::vector<float> memory_ = std::vector<float>(256);
  const ExchangingModel first_{memory_.data()};
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t *group_ = nullptr, *sp_group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
};

TEST_F(ReplanModelTest, TheSameModelWithPassesAndHintsOfCostOfItsOwnIsTaken) {
  EXPECT_EQ(Step(), "");
  ExchangingModel next(memory_.data());
  EXPECT_EQ(Message(Replan(next)), "");
  next.flops = 1e6;
  next.collective.priority = 3;
  next.passes = {{COMMSCHED_NO_GRAD, 0, 0, 0},
                 {COMMSCHED_FORWARD, 0, 0, 0},
                 {COMMSCHED_FORWARD, 1, 0, 0},
                 {COMMSCHED_BACKWARD, 1, 0, 0},
                 {COMMSCHED_BACKWARD, 0, 0, 0}};
  EXPECT_EQ(Message(Replan(next)), "");
  next.passes.clear();
  EXPECT_EQ(Message(Replan(next)), "");
  EXPECT_EQ(Step(), "");
}

TEST_F(ReplanModelTest, OtherModulesAndParametersAreRefusedByName) {
  using Model = ExchangingModel;
  ExpectRefused("module 1 'other' with parameters 1, 0; it is 'second' with",
                [](Model* m) { m->second = "other"; });
  ExpectRefused(
      "module 1 'second' with parameters 1; it is 'second' with "
      "parameters 1, 0",
      [](Model* m) { m->is_tied = false; });
  ExpectRefused("module 0 'first' with parameters 0, recomputed with segment 1",
                [](Model* m) { m->recomputes = true; });
  ExpectRefused("parameters: 3; it is 2", [](Model* m) { m->has_bias = true; });
  ExpectRefused("parameter 0 'u' [8, 8]; it is 'w' [8, 8]",
                [](Model* m) { m->weight = "u"; });
  ExpectRefused("parameter 0 'w' [64]; it is 'w' [8, 8]",
                [](Model* m) { m->dims = {64}; });
  ExpectRefused("parameter 0 'w' [8, 8], frozen; it is",
                [](Model* m) { m->weights.frozen = 1; });
  ExpectRefused("parameter 0 'w' [8, 8], atomic; it is",
                [](Model* m) { m->weights.atomic = 1; });
  ExpectRefused("parameter 0 'w' [8, 8], option set 1; it is",
                [](Model* m) { m->weights.option_set = 1; });
  ExpectRefused("parameter 0 'w' [8, 8], replicated over group 1; it is",
                [](Model* m) { m->weights.replicated_over = 1; });
  ExpectRefused("parameter 0 'w' [8, 8], BF16; it is", [](Model* m) {
    m->weights.has_dtype = 1;
    m->weights.dtype = COMMSCHED_BF16;
  });
  EXPECT_EQ(Step(), "");  // Nothing has changed.
}

TEST_F(ReplanModelTest, OtherExchangesAreRefusedByName) {
  using Model = ExchangingModel;
  ExpectRefused("groups: 2; it is 1",
                [](Model* m) { m->has_one_more_group = true; });
  ExpectRefused("group 1 'cp' of 1; it is 'sp' of 1",
                [](Model* m) { m->group = "cp"; });
  ExpectRefused("activations: 2; it is 1",
                [](Model* m) { m->has_one_more_activation = true; });
  ExpectRefused("activation 0 'b', 16 of F32 at",
                [](Model* m) { m->activation = "b"; });
  ExpectRefused("activation 0 'a', 15 of F32 at",
                [](Model* m) { m->count = 15; });
  ExpectRefused("activation 0 'a', 16 of I32 at",
                [](Model* m) { m->dtype = COMMSCHED_I32; });
  // As of another object of the same kind, of which the engine has no address.
  ExpectRefused("activation 0 'a', 16 of F32 at 0x",
                [](Model* m) { m->memory += 64; });
  ExpectRefused("activation 0 'a', 16 of F32 at 0x0; it is",
                [](Model* m) { m->memory = nullptr; });
  EXPECT_EQ(Step(), "");
}

TEST_F(ReplanModelTest, OtherCallsWithinModulesAreRefusedByName) {
  using Model = ExchangingModel;
  ExpectRefused("ops: 3; it is 2", [](Model* m) { m->has_one_more_op = true; });
  ExpectRefused(
      "ids of ops: op 0 'backward.second.add'; it is op 0 "
      "'forward.second.make'",
      [](Model* m) { m->ops_in_order = false; });
  ExpectRefused(
      "call 0 of the backward of module 1 op 'add'; reads activation "
      "0; it is op 'add', gradients 1; reads activation 0",
      [](Model* m) { m->adds_gradient = false; });
  ExpectRefused(
      "call 0 of the backward of module 1 op 'add', gradients 1; "
      "reads activation 0, 4 from 8; it is",
      [](Model* m) {
        m->read.region = COMMSCHED_RANGE;
        m->read.offset = 8;
        m->read.count = 4;
      });
  ExpectRefused("call 1 of the forward of module 1 collective 'swap' of kind " +
                    std::to_string(COMMSCHED_BROADCAST),
                [](Model* m) { m->collective.kind = COMMSCHED_BROADCAST; });
  ExpectRefused("call 1 of the forward of module 1 collective 'turn'",
                [](Model* m) { m->collective.name = "turn"; });
  ExpectRefused("call 1 of the forward of module 1 collective 'swap'",
                [](Model* m) { m->collective.group = 0; });
  EXPECT_EQ(Step(), "");
}

}  // namespace
}  // namespace commsched::engine

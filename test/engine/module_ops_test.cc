// Ops and collectives within modules: commsched/engine_ops.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commsched/engine_ops.h"
#include "test/engine/exchange_model.h"
#include "test/engine/expect_error.h"
#include "test/engine/pass_calls.h"
#include "test/support/alloc_counter.h"

namespace commsched::engine {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct Trained {
  std::string error;
  std::vector<std::vector<float>> weights;  // By rank.
  double norm = 0;
};

// Steps, with an evaluation between them.
Trained Train(const ExchangeRun& run) {
  Trained trained;
  trained.weights.resize(static_cast<size_t>(run.ranks()));
  trained.error = OnExchangeRanks(run, [&](ExchangeRank& rank, int32_t index) {
    std::string message = rank.Build();
    for (uint32_t step = 0; message.empty() && step < 4; ++step) {
      message = rank.Step(step);
      if (message.empty() && step == 1) message = rank.Evaluate();
    }
    if (!message.empty()) return message;
    if (index == 0) {
      (void)commsched_engine_norm(rank.engine(), &trained.norm);
    }
    return rank.Weights(&trained.weights[static_cast<size_t>(index)]);
  });
  return trained;
}

nlohmann::json PlanOf(const ExchangeRun& run) {
  nlohmann::json plan;
  const std::string error =
      OnExchangeRanks(run, [&](ExchangeRank& rank, int32_t index) {
        const std::string message = rank.Build();
        if (!message.empty() || index != 0) return message;
        char* text = nullptr;
        (void)commsched_plan_explain(commsched_engine_plan(rank.engine()),
                                     COMMSCHED_JSON, &text);
        plan = nlohmann::json::parse(text);
        commsched_string_free(text);
        return message;
      });
  EXPECT_EQ(error, "");
  return plan;
}

nlohmann::json LaunchOf(const nlohmann::json& plan, const std::string& member) {
  for (const auto& launch : plan["launches"]) {
    for (const auto& each : launch["members"]) {
      if (each == member) return launch;
    }
  }
  ADD_FAILURE() << "no launch of " << member;
  return {};
}

nlohmann::json OpOf(const nlohmann::json& plan, const std::string& name) {
  for (const auto& op : plan["ops"]) {
    if (op["name"] == name) return op;
  }
  ADD_FAILURE() << "no op " << name;
  return {};
}

// The launches of this step that `op` waits for.
std::vector<uint64_t> WaitsOf(const nlohmann::json& op) {
  std::vector<uint64_t> keys;
  for (const auto& wait : op["waits"]) {
    if (wait["distance"] == 0) keys.push_back(wait["launch"]);
  }
  return keys;
}

struct StageAndWindow {
  uint32_t stage;
  uint32_t micro_batches;
  uint64_t accumulate_bytes;
};

class ModuleOpsTest : public ::testing::TestWithParam<StageAndWindow> {};

// Each rank checks every element that arrives.
TEST_P(ModuleOpsTest, WhatIsSentArrivesAndWeightsAreThoseOfAnyStage) {
  ExchangeRun run;
  run.options.micro_batches = GetParam().micro_batches;
  run.options.accumulate_bytes = GetParam().accumulate_bytes;
  const Trained expected = Train(run);
  ASSERT_EQ(expected.error, "");
  run.options.zero_stage = GetParam().stage;
  const Trained trained = Train(run);
  ASSERT_EQ(trained.error, "");
  for (const std::vector<float>& weights : trained.weights) {
    EXPECT_EQ(weights, expected.weights[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, ModuleOpsTest,
    ::testing::Values(StageAndWindow{0, 1, 0}, StageAndWindow{1, 1, 0},
                      StageAndWindow{2, 1, 0}, StageAndWindow{3, 1, 0},
                      StageAndWindow{2, 3, 0}, StageAndWindow{2, 3, 1},
                      StageAndWindow{3, 3, 0}, StageAndWindow{3, 3, 1}));

// On 2, 3 and 4 ranks.
TEST_P(ModuleOpsTest, BackwardsInHalvesHaveTheSameWeights) {
  for (const auto& [dp, sp] :
       std::vector<std::pair<int32_t, int32_t>>{{1, 2}, {3, 1}, {2, 2}}) {
    ExchangeRun run;
    run.dp = dp;
    run.sp = sp;
    run.options.micro_batches = GetParam().micro_batches;
    run.options.accumulate_bytes = GetParam().accumulate_bytes;
    run.options.zero_stage = GetParam().stage;
    const Trained expected = Train(run);
    ASSERT_EQ(expected.error, "");
    run.halves = true;
    const Trained trained = Train(run);
    ASSERT_EQ(trained.error, "");
    EXPECT_EQ(trained.weights, expected.weights);
  }
}

// The forward of another micro-batch leaves its own in what the first half of
// this one's backward has had sent.
TEST(ModuleOpsErrorTest, ASecondHalfReadsWhatTheFirstHasLeft) {
  constexpr uint32_t kMix = ExchangeRank::kMixModule;
  const struct {
    bool late;   // After the next micro-batch's first half.
    bool reads;  // Parameters, in an op that adds to gradients.
    const char* message;
  } cases[] = {
      {true, false,
       "engine: pass 11 is BACKWARD_WEIGHT of module 1 'mix', micro-batch 0, "
       "whose op 'add' reads activation 'd', which is overwritten before that "
       "pass"},
      {false, true,
       "whose op 'both' reads parameters, which are not there in the second "
       "half of a backward"}};
  for (const auto& each : cases) {
    ExchangeRun run;
    run.options.micro_batches = 2;
    run.halves = true;
    const std::string error =
        OnExchangeRanks(run, [&](ExchangeRank& rank, int32_t) -> std::string {
          if (each.reads) {
            commsched_module_op_desc_t desc = commsched_module_op_desc_init();
            desc.name = "both";
            desc.backward = 1;
            desc.parameters = desc.gradients = &kMix;
            desc.num_parameters = desc.num_gradients = 1;
            uint32_t id = 0;
            EXPECT_EQ(commsched_model_add_op(rank.model(), kMix, &desc, &id),
                      COMMSCHED_OK);
          }
          if (each.late) {
            std::vector<commsched_pass_t> passes;
            for (uint32_t mb = 0; mb < 2; ++mb) {
              for (const auto& [kind, module] :
                   std::vector<std::pair<commsched_pass_kind_t, uint32_t>>{
                       {COMMSCHED_FORWARD, 0},
                       {COMMSCHED_FORWARD, 1},
                       {COMMSCHED_BACKWARD_INPUT, 1},
                       {COMMSCHED_BACKWARD_INPUT, 0},
                       {COMMSCHED_BACKWARD_WEIGHT, 0}}) {
                passes.push_back({kind, module, mb, 0});
              }
            }
            passes.push_back({COMMSCHED_BACKWARD_WEIGHT, 1, 1, 0});
            passes.push_back({COMMSCHED_BACKWARD_WEIGHT, 1, 0, 0});
            EXPECT_EQ(commsched_model_set_passes(rank.model(), passes.data(),
                                                 passes.size()),
                      COMMSCHED_OK);
          }
          EXPECT_ENGINE_ERROR(rank.Create(), COMMSCHED_INVALID_ARGUMENT,
                              HasSubstr(each.message));
          return "";
        });
    EXPECT_EQ(error, "");
  }
}

TEST_P(ModuleOpsTest, ForwardsThatRunAgainExchangeAgain) {
  ExchangeRun run;
  run.options.micro_batches = GetParam().micro_batches;
  run.options.accumulate_bytes = GetParam().accumulate_bytes;
  run.options.zero_stage = GetParam().stage;
  const Trained expected = Train(run);
  ASSERT_EQ(expected.error, "");
  run.recompute = true;
  const Trained trained = Train(run);
  ASSERT_EQ(trained.error, "");
  EXPECT_EQ(trained.weights, expected.weights);
  const nlohmann::json plan = PlanOf(run);
  const auto swap = LaunchOf(plan, "recompute[0].mix.swap");
  EXPECT_EQ(swap["due_after"], "recompute[0].mix.make");
  EXPECT_EQ(swap["group"], "sp");
  EXPECT_THAT(WaitsOf(OpOf(plan, "recompute[0].mix.use")),
              UnorderedElementsAre(swap["key"].get<uint64_t>()));
}

TEST(ModuleOpsTest, GradientsOfAllOpsAreReduced) {
  ExchangeRun run;
  run.options.zero_stage = 2;
  const std::string error =
      OnExchangeRanks(run, [&](ExchangeRank& rank, int32_t) {
        std::string message = rank.Build();
        if (message.empty()) message = rank.Step(0);
        if (!message.empty()) return message;
        double norm = 0;
        (void)commsched_engine_norm(rank.engine(), &norm);
        // The mean of 1 to 4 is 2.5: plain w 2.5, mix 2 w 2.5 + 0.5.
        double squares = 0;
        for (int i = 0; i < 300; ++i) {
          squares += std::pow((0.25 + 0.01 * i) * 2.5, 2);
        }
        for (int i = 0; i < 64; ++i) {
          squares += std::pow(2 * (0.25 + 0.01 * i) * 2.5 + 0.5, 2);
        }
        EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
        return message;
      });
  EXPECT_EQ(error, "");
}

TEST(ModuleOpsTest, AModuleThatAllRanksLeaveOutAddsNothing) {
  for (uint32_t stage : {0u, 2u, 3u}) {
    ExchangeRun run;
    run.options.zero_stage = stage;
    run.engine.allow_skipped_modules = 1;
    const std::string error =
        OnExchangeRanks(run, [&](ExchangeRank& rank, int32_t) {
          std::string message = rank.Build();
          if (message.empty()) message = rank.StepWithoutExchanges(0);
          if (!message.empty()) return message;
          double norm = 0;
          (void)commsched_engine_norm(rank.engine(), &norm);
          double squares = 0;
          for (int i = 0; i < 300; ++i) {
            squares += std::pow((0.25 + 0.01 * i) * 2.5, 2);
          }
          EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
          message = rank.Step(1);
          return message.empty() ? rank.Evaluate() : message;
        });
    EXPECT_EQ(error, "") << "stage " << stage;
  }
}

TEST(ModuleOpsTest, SurviveALinkCapsAndTheSerialSchedule) {
  ExchangeRun run;
  run.options.zero_stage = 3;
  const Trained expected = Train(run);
  run.plan.max_launches_in_flight = 1;
  run.plan.partition_bytes = 256;
  run.options.max_live_bytes = 16384;
  EXPECT_EQ(Train(run).weights, expected.weights);
  run.plan.schedule = COMMSCHED_SERIAL;
  const Trained serial = Train(run);
  EXPECT_EQ(serial.error, "");
  EXPECT_EQ(serial.weights, expected.weights);
}

TEST(ModuleOpsTest, ExchangesWaitForTheirInputAndOpsForWhatTheyRead) {
  ExchangeRun run;
  run.options.zero_stage = 2;
  const nlohmann::json plan = PlanOf(run);
  const auto swap = LaunchOf(plan, "forward[0].mix.swap");
  EXPECT_EQ(swap["due_after"], "forward[0].mix.make");
  EXPECT_EQ(swap["group"], "sp");
  const auto back = LaunchOf(plan, "backward[0].mix.back");
  EXPECT_EQ(back["due_after"], "backward[0].mix.turn");
  EXPECT_THAT(WaitsOf(OpOf(plan, "forward[0].mix.use")),
              UnorderedElementsAre(swap["key"].get<uint64_t>()));
  EXPECT_THAT(WaitsOf(OpOf(plan, "backward[0].mix.add")),
              UnorderedElementsAre(back["key"].get<uint64_t>()));
  for (const char* beside : {"forward[0].mix.other", "backward[0].mix.weigh"}) {
    EXPECT_TRUE(WaitsOf(OpOf(plan, beside)).empty()) << beside;
  }
}

TEST(ModuleOpsTest, AReductionIsDueWhenTheLastOpThatAddsIsOver) {
  ExchangeRun run;
  run.options.zero_stage = 2;
  run.options.bucket_bytes = 16;  // A bucket per parameter.
  const nlohmann::json plan = PlanOf(run);
  EXPECT_EQ(LaunchOf(plan, "reduce_scatter.1")["due_after"],
            "backward[0].mix.add");
  EXPECT_EQ(LaunchOf(plan, "reduce_scatter.0")["due_after"],
            "backward[0].plain");
}

TEST(ModuleOpsTest, AStepAllocatesNothingOnceWarm) {
  ExchangeRun run;
  run.recompute = true;
  run.options.zero_stage = 3;
  run.options.micro_batches = 2;
  std::barrier all(run.ranks());
  uint64_t allocations = 0;
  const std::string error =
      OnExchangeRanks(run, [&](ExchangeRank& rank, int32_t index) {
        std::string message = rank.Build();
        for (uint32_t step = 0; message.empty() && step < 3; ++step) {
          message = rank.Step(step);
        }
        all.arrive_and_wait();
        if (index == 0) allocations = HeapAllocations();
        all.arrive_and_wait();
        for (uint32_t step = 3; message.empty() && step < 30; ++step) {
          message = rank.Step(step);
        }
        if (message.empty()) (void)commsched_engine_drain(rank.engine());
        all.arrive_and_wait();
        if (index == 0) allocations = HeapAllocations() - allocations;
        all.arrive_and_wait();
        return message;
      });
  EXPECT_EQ(error, "");
  EXPECT_EQ(allocations, 0u);
}

// ---- Errors -----------------------------------------------------------------

// On the only rank of a world of one.
void OnOneRank(const std::function<void(ExchangeRank&)>& body) {
  ExchangeRun run;
  run.dp = 1;
  run.sp = 1;
  EXPECT_EQ(OnExchangeRanks(run,
                            [&](ExchangeRank& rank, int32_t) {
                              body(rank);
                              return std::string();
                            }),
            "");
}

// An order of modules with ops is not recorded.
TEST(ModuleOpsOrderTest, AModuleOutOfOrderIsNotAdvisedToBeRecorded) {
  OnOneRank([](ExchangeRank& rank) {
    ASSERT_EQ(rank.Build(), "");
    commsched_engine_t* engine = rank.engine();
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(ForwardBegin(engine, ExchangeRank::kMixModule, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        EndsWith("expected pass_begin of FORWARD of module 0 "
                                 "'plain', micro-batch 0"));
  });
}

TEST(ModuleOpsOrderTest, OpsRunInOrderWithinTheirModule) {
  OnOneRank([](ExchangeRank& rank) {
    ASSERT_EQ(rank.Build(), "");
    commsched_engine_t* engine = rank.engine();
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        commsched_engine_op_begin(engine, 0, 0), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("op_begin of op 0 'forward.mix.make', micro-batch 0 was "
                  "called; expected pass_begin of FORWARD of module 0"));
    ASSERT_EQ(ForwardBegin(engine, 0, 0), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_engine_op_begin(engine, 0, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected pass_end of FORWARD of module 0"));
    ASSERT_EQ(ForwardEnd(engine, 0, 0), COMMSCHED_OK);
    ASSERT_EQ(ForwardBegin(engine, 1, 0), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        ForwardEnd(engine, 1, 0), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("expected op_begin of op 0 'forward.mix.make'"));
    EXPECT_ENGINE_ERROR(
        commsched_engine_op_begin(engine, 1, 0), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("expected op_begin of op 0 'forward.mix.make'"));
    EXPECT_ENGINE_ERROR(commsched_engine_op_begin(engine, 0, 1),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("micro-batch 1 was called"));
    EXPECT_ENGINE_ERROR(commsched_engine_op_begin(engine, 99, 0),
                        COMMSCHED_FAILED_PRECONDITION, HasSubstr("op 99"));
    ASSERT_EQ(commsched_engine_op_begin(engine, 0, 0), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_engine_op_begin(engine, 0, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected op_end of op 0"));
    EXPECT_ENGINE_ERROR(ForwardEnd(engine, 1, 0), COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected op_end of op 0"));
    ASSERT_EQ(commsched_engine_op_end(engine, 0, 0), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_engine_op_end(engine, 0, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("expected op_begin of op 1"));
  });
}

TEST(ModuleOpsContractTest, NothingIsAddedOnceItIsPlanned) {
  OnOneRank([](ExchangeRank& rank) {
    ASSERT_EQ(rank.Build(), "");
    float memory = 0;
    uint32_t id = 77;
    commsched_activation_desc_t activation = commsched_activation_desc_init();
    activation.name = "late";
    activation.count = 1;
    activation.address = &memory;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_activation(rank.model(), &activation, &id),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("nothing can be added"));
    EXPECT_ENGINE_ERROR(commsched_model_add_group(rank.model(), "late", 1, &id),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("nothing can be added"));
    commsched_module_op_desc_t op = commsched_module_op_desc_init();
    op.name = "late";
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &op, &id),
                        COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("nothing can be added"));
    commsched_module_collective_desc_t collective =
        commsched_module_collective_desc_init();
    collective.name = "late";
    EXPECT_ENGINE_ERROR(
        commsched_model_add_collective(rank.model(), 1, &collective),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("nothing can be added"));
    EXPECT_EQ(id, 77u);
  });
}

TEST(ModuleOpsContractTest, BadGroupsAndActivationsAreNamed) {
  OnOneRank([](ExchangeRank& rank) {
    uint32_t id = 77;
    EXPECT_ENGINE_ERROR(commsched_model_add_group(rank.model(), "sp", 1, &id),
                        COMMSCHED_ALREADY_EXISTS, HasSubstr("'sp'"));
    EXPECT_ENGINE_ERROR(commsched_model_add_group(rank.model(), "tp", 0, &id),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("'tp'"));
    alignas(8) float memory[4] = {};
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = "a";
    desc.count = 2;
    desc.address = memory;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_activation(rank.model(), &desc, &id),
        COMMSCHED_ALREADY_EXISTS, HasSubstr("'a'"));
    desc.name = "e";
    desc.address = reinterpret_cast<char*>(memory) + 2;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_activation(rank.model(), &desc, &id),
        COMMSCHED_INVALID_ARGUMENT, HasSubstr("activation 'e' has an address"));
    desc.address = memory;
    desc.count = 0;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_activation(rank.model(), &desc, &id),
        COMMSCHED_INVALID_ARGUMENT, HasSubstr("'e'"));
    desc.count = 1;
    desc.dtype = COMMSCHED_BOOL;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_activation(rank.model(), &desc, &id),
        COMMSCHED_INVALID_ARGUMENT,
        HasSubstr("'e': dtype bool is for channels; graphs take f32"));
    desc.dtype = 99;
    EXPECT_EQ(commsched_model_add_activation(rank.model(), &desc, &id),
              COMMSCHED_INVALID_ARGUMENT);
    desc.dtype = COMMSCHED_F32;
    desc.name = nullptr;
    EXPECT_EQ(commsched_model_add_activation(rank.model(), &desc, &id),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_EQ(id, 77u);
    // None of this has left anything behind.
    EXPECT_EQ(rank.Build(), "");
    EXPECT_EQ(rank.Step(0), "");
  });
}

TEST(ModuleOpsContractTest, BadOpsAreNamed) {
  OnOneRank([](ExchangeRank& rank) {
    uint32_t id = 77;
    const uint32_t plain = 0;
    const uint32_t missing = 9;
    commsched_module_op_desc_t desc = commsched_module_op_desc_init();
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("'mix'"));
    desc.name = "make";
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_ALREADY_EXISTS,
                        HasSubstr("forward.mix.make"));
    desc.name = "new";
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 5, &desc, &id),
                        COMMSCHED_NOT_FOUND, HasSubstr("module 5"));
    desc.parameters = &plain;
    desc.num_parameters = 1;
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("module 'mix' does not use"));
    desc.parameters = &missing;
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_NOT_FOUND, HasSubstr("parameter 9"));
    desc.parameters = nullptr;
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("1 parameters, which are NULL"));
    desc.num_parameters = 0;
    desc.gradients = &plain;
    desc.num_gradients = 1;
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 0, &desc, &id),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("only ops of a backward can"));
    desc.num_gradients = 0;
    EXPECT_ENGINE_ERROR(
        commsched_model_add_op(rank.model(), 1, &desc, &id),
        COMMSCHED_INVALID_ARGUMENT,
        HasSubstr("is given gradients, but num_gradients is 0"));
    desc.gradients = nullptr;
    desc.flops = -1;
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("'forward.mix.new'"));
    desc.flops = 0;
    desc.backward = 2;
    EXPECT_ENGINE_ERROR(commsched_model_add_op(rank.model(), 1, &desc, &id),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("backward"));
    desc.backward = 0;
    commsched_access_t access = {};
    access.buffer = 44;
    access.mode = COMMSCHED_READ;
    desc.accesses = &access;
    desc.num_accesses = 1;
    EXPECT_EQ(commsched_model_add_op(rank.model(), 1, &desc, &id),
              COMMSCHED_NOT_FOUND);
    access.buffer = 0;
    access.region = COMMSCHED_RANGE;
    access.offset = kExchanged;
    access.count = 1;
    EXPECT_EQ(commsched_model_add_op(rank.model(), 1, &desc, &id),
              COMMSCHED_OUT_OF_RANGE);
    EXPECT_EQ(id, 77u);
    EXPECT_EQ(rank.Build(), "");
    EXPECT_EQ(rank.Step(0), "");
  });
}

TEST(ModuleOpsContractTest, BadCollectivesAreNamed) {
  OnOneRank([](ExchangeRank& rank) {
    commsched_module_collective_desc_t desc =
        commsched_module_collective_desc_init();
    desc.name = "swap";
    desc.kind = COMMSCHED_ALL_TO_ALL;
    desc.group = 1;
    desc.output.buffer = 1;
    EXPECT_ENGINE_ERROR(commsched_model_add_collective(rank.model(), 1, &desc),
                        COMMSCHED_ALREADY_EXISTS,
                        HasSubstr("forward.mix.swap"));
    desc.name = "new";
    desc.group = 2;
    EXPECT_ENGINE_ERROR(commsched_model_add_collective(rank.model(), 1, &desc),
                        COMMSCHED_NOT_FOUND, HasSubstr("group 2"));
    desc.group = 1;
    desc.num_counts = 1;
    EXPECT_ENGINE_ERROR(commsched_model_add_collective(rank.model(), 1, &desc),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("1 counts, which are NULL"));
    const uint64_t too_many = kExchanged + 1;
    desc.counts = &too_many;
    desc.num_counts = 0;
    EXPECT_ENGINE_ERROR(commsched_model_add_collective(rank.model(), 1, &desc),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("num_counts is 0"));
    desc.num_counts = 1;
    EXPECT_ENGINE_ERROR(commsched_model_add_collective(rank.model(), 1, &desc),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("sends 65"));
    EXPECT_EQ(rank.Build(), "");
    EXPECT_EQ(rank.Step(0), "");
  });
}

}  // namespace
}  // namespace commsched::engine

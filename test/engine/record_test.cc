// The order of modules, recorded in the first forward.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ranges>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/lent_memory.h"
#include "test/engine/pass_calls.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Order = std::vector<uint32_t>;

ToyRun RecordedBy(std::function<Order(uint32_t)> order) {
  ToyRun run;
  run.ranks = 3;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  run.order = std::move(order);
  return run;
}

ToyRun RecordedRun(const Order& order) {
  return RecordedBy([order](uint32_t) { return order; });
}

void SetStage(uint32_t stage, ToyRun* run) {
  run->options.zero_stage = stage;
  run->options.max_live_bytes = stage == 3 ? 120'000 : 0;
}

// In every stage the weights are those of a plain loop, and of stage 0 to the
// bit.
void ExpectWeightsOfAPlainLoop(ToyRun run) {
  const std::vector<float> expected = ReferenceWeights(run);
  std::vector<float> first;
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    SetStage(stage, &run);
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    if (first.empty()) first = result.weights[0];
    for (const std::vector<float>& weights : result.weights) {
      ASSERT_EQ(weights.size(), expected.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], expected[i], 1e-5) << i;
      }
      EXPECT_TRUE(SameBits(weights, first));
    }
    EXPECT_TRUE(stage < 3 || result.info.arena_bytes <= 120'000);
  }
}

TEST(RecordTest, AnOrderThatIsNotThatOfRegistration) {
  ExpectWeightsOfAPlainLoop(RecordedRun({kHead, kBlock1, kEmbed, kBlock0}));
}

TEST(RecordTest, AModuleThatIsUsedTwice) {
  ExpectWeightsOfAPlainLoop(
      RecordedRun({kEmbed, kBlock0, kBlock1, kBlock0, kHead}));
  ToyRun run = RecordedRun({kBlock1, kEmbed, kHead, kBlock1, kBlock0});
  run.options.micro_batches = 3;
  run.options.accumulate_bytes = 1;
  ExpectWeightsOfAPlainLoop(run);
}

TEST(RecordTest, AnOrderThatChanges) {
  ToyRun run = RecordedBy([](uint32_t step) {
    return step < 2 ? Order{kEmbed, kBlock1, kBlock0, kHead}
                    : Order{kEmbed, kBlock0, kBlock0, kBlock1, kHead};
  });
  run.steps = 5;
  ExpectWeightsOfAPlainLoop(run);
}

TEST(RecordTest, TheOrderOfRegistrationGivesTheSamePlan) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = RecordedRun({kEmbed, kBlock0, kBlock1, kHead});
    SetStage(stage, &run);
    const ToyResult recorded = RunToy(run);
    run.order = nullptr;
    const ToyResult registered = RunToy(run);
    ASSERT_EQ(recorded.error, "");
    ASSERT_EQ(registered.error, "");
    EXPECT_TRUE(SameBits(recorded.weights[0], registered.weights[0]));
    EXPECT_EQ(recorded.info.state_bytes, registered.info.state_bytes);
    EXPECT_EQ(recorded.info.num_ops, registered.info.num_ops);
  }
}

// The branch that the first step takes is all that it shows.
TEST(RecordTest, ABranchThatTheFirstStepDoesNotTake) {
  ToyRun run = RecordedRun({kEmbed, kBlock1, kBlock0, kHead});
  run.engine.allow_skipped_modules = 1;
  run.steps = 4;
  run.skips = [](const ToyPass& pass) {
    return pass.module == (pass.step % 2 == 0 ? kBlock0 : kEmbed);
  };
  // Left out, they come behind the module registered before them.
  run.order = [](uint32_t) { return Order{kEmbed, kBlock0, kBlock1, kHead}; };
  ExpectWeightsOfAPlainLoop(run);
}

TEST(RecordTest, ParametersAndGradientsOf16Bits) {
  ToyRun run = RecordedRun({kBlock1, kEmbed, kHead, kBlock1, kBlock0});
  run.options.parameter_dtype = COMMSCHED_BF16;
  run.engine.allow_skipped_modules = 1;
  run.skips = [](const ToyPass& pass) {
    return pass.step == 1 && pass.module == kHead;
  };
  std::vector<float> first;
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    SetStage(stage, &run);
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    if (first.empty()) first = result.weights[0];
    EXPECT_TRUE(SameBits(result.weights[1], first)) << stage;
  }
  const std::vector<float> expected = ReferenceWeights(run);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(first[i], expected[i], 0.01) << i;
  }
}

TEST(RecordTest, BucketsAreGatheredInTheOrderOfFirstUse) {
  ToyRun run = RecordedRun({kBlock1, kHead, kBlock0, kEmbed});
  run.options.zero_stage = 1;
  run.options.micro_batches = 1;
  run.plan.priority = COMMSCHED_PRIORITY_OFF;
  run.plan.coalesce_bytes = 1;
  std::vector<std::string> gathers;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
        std::string message = toy.Build();
        if (message.empty()) message = toy.Step(0);
        if (rank != 0 || !message.empty()) return message;
        char* text = nullptr;
        if (commsched_plan_explain(commsched_engine_plan(toy.engine()),
                                   COMMSCHED_JSON, &text) != COMMSCHED_OK) {
          return commsched_last_error();
        }
        const nlohmann::json plan = nlohmann::json::parse(text);
        commsched_string_free(text);
        for (const auto& launch : plan["launches"]) {
          for (const std::string member : launch["members"]) {
            if (member.rfind("all_gather", 0) == 0) gathers.push_back(member);
          }
        }
        return message;
      });
  EXPECT_EQ(error, "");
  // Buckets 3 and 4 are block1's, 4 and 0 the head's, 1 and 2 block0's.
  EXPECT_THAT(gathers,
              ElementsAre("all_gather.3", "all_gather.4", "all_gather.0",
                          "all_gather.1", "all_gather.2"));
}

TEST(RecordTest, AnEvaluationRecordsAsWell) {
  for (uint32_t stage : {1u, 3u}) {
    ToyRun run = RecordedRun({kBlock1, kEmbed, kHead, kBlock0});
    SetStage(stage, &run);
    const ToyResult plain = RunToy(run);
    ASSERT_EQ(plain.error, "");
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
      std::string message = toy.Build();
      const auto look = [&](uint32_t module) {
        if (module != kBlock1) return std::string();
        std::vector<float> values(ToyParameters()[4].count());
        EXPECT_EQ(commsched_engine_get_parameter(toy.engine(), 4, values.data(),
                                                 values.size()),
                  COMMSCHED_OK);
        EXPECT_EQ(values[5], ToyInitialValue(4, 5));
        return std::string();
      };
      EXPECT_EQ(commsched_engine_session(toy.engine()), nullptr);
      if (message.empty()) message = toy.Evaluate(look);
      EXPECT_NE(commsched_engine_session(toy.engine()), nullptr);
      if (message.empty()) message = toy.Evaluate(look);
      for (uint32_t step = 0; message.empty() && step < run.steps; ++step) {
        message = toy.Step(step);
      }
      std::vector<float> weights;
      if (message.empty()) message = toy.Weights(&weights);
      EXPECT_TRUE(SameBits(weights, plain.weights[0]));
      return message;
    });
    EXPECT_EQ(error, "");
  }
}

TEST(RecordTest, CostsAreThoseOfTheRecordedOps) {
  ToyRun run = RecordedRun({kHead, kEmbed, kBlock0, kHead, kBlock1});
  run.ranks = 1;
  run.engine.measure_steps = 10;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    for (uint32_t step = 0; message.empty() && step < 3; ++step) {
      message = toy.Step(step);
    }
    commsched_engine_info_t info = commsched_engine_info_init();
    EXPECT_EQ(commsched_engine_get_info(toy.engine(), &info), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_drain(toy.engine()), COMMSCHED_OK);
    std::vector<int64_t> costs(info.num_ops);
    EXPECT_EQ(
        commsched_engine_op_costs(toy.engine(), costs.data(), costs.size()),
        COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_record_order(toy.engine()), COMMSCHED_OK);
    EXPECT_EQ(
        commsched_engine_op_costs(toy.engine(), costs.data(), costs.size()),
        COMMSCHED_FAILED_PRECONDITION);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(RecordTest, AllocatesNothingOnceRecorded) {
  ToyRun run = RecordedRun({kHead, kEmbed, kBlock0, kHead, kBlock1});
  SetStage(3, &run);
  // The model's own order is on the heap.
  const auto step = [](ToyRank& toy, uint32_t t) -> std::string {
    if (t < 3) return toy.Step(t);
    commsched_engine_t* engine = toy.engine();
    const uint32_t order[] = {kHead, kEmbed, kBlock0, kHead, kBlock1};
    commsched_engine_step_begin(engine, nullptr);
    for (uint32_t mb : {0u, 1u}) {
      for (uint32_t m : order) {
        ForwardBegin(engine, m, mb);
        ForwardEnd(engine, m, mb);
      }
      for (uint32_t m : std::views::reverse(order)) {
        BackwardBegin(engine, m, mb);
        BackwardEnd(engine, m, mb);
      }
    }
    UpdateWith(engine, 0.1f);
    return commsched_engine_step_end(engine) == COMMSCHED_OK
               ? ""
               : commsched_engine_last_error();
  };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

// ---- Steps of another shape -------------------------------------------------

// In every stage, on 2 to 4 ranks, the weights are those of a run in which the
// order was known from the beginning.
void ExpectAsIfRegistered(ToyRun run) {
  run.order = [](uint32_t) { return Order{kEmbed, kBlock0, kBlock1, kHead}; };
  for (run.ranks = 2; run.ranks <= 4; ++run.ranks) {
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(std::to_string(run.ranks) + " ranks, stage " +
                   std::to_string(stage));
      SetStage(stage, &run);
      ToyRun registered = run;
      registered.order = nullptr;
      const ToyResult expected = RunToy(registered);
      ASSERT_EQ(expected.error, "");
      const ToyResult result = RunToy(run);
      ASSERT_EQ(result.error, "");
      for (const std::vector<float>& weights : result.weights) {
        EXPECT_TRUE(SameBits(weights, expected.weights[0]));
      }
    }
  }
}

TEST(RecordTest, TheRecordedStepMayHaveFewerMicroBatches) {
  ToyRun run = RecordedRun(Order{});
  run.options.micro_batches = 3;
  run.num_micro_batches = [](int32_t rank, uint32_t step) {
    return 1 + (static_cast<uint32_t>(rank) + step) % 3;
  };
  ExpectAsIfRegistered(run);
}

TEST(RecordTest, ARankMayCancelTheForwardThatIsRecorded) {
  for (const uint32_t module : {kEmbed, kBlock1, kHead}) {
    for (const commsched_cancel_scope_t scope :
         {COMMSCHED_CANCEL_LOCAL, COMMSCHED_CANCEL_ALL}) {
      SCOPED_TRACE("module " + std::to_string(module) + ", scope " +
                   std::to_string(scope));
      ToyRun run = RecordedRun(Order{});
      run.options.cancel_all = 1;
      run.cancel_scope = scope;
      run.cancels = [module](const ToyBegin& next) {
        const bool here = next.pass.rank == 1 && next.pass.step == 0 &&
                          next.pass.module == module && !next.backward;
        return here ? ToyCancel::kBefore : ToyCancel::kNot;
      };
      ExpectAsIfRegistered(run);
      if (HasFailure()) return;
    }
  }
}

// Of what it has not begun nobody knows the order but by the plan before.
TEST(RecordErrorTest, ACancelledForwardDoesNotFollowTheOthersToAnotherOrder) {
  for (uint32_t stage : {1u, 3u}) {
    ToyRun run = RecordedRun({kEmbed, kBlock1, kBlock0, kHead});
    SetStage(stage, &run);
    run.cancels = [](const ToyBegin& next) {
      const bool here = next.pass.rank == 1 && next.pass.step == 0 &&
                        next.pass.module == kBlock1 && !next.backward;
      return here ? ToyCancel::kBefore : ToyCancel::kNot;
    };
    EXPECT_THAT(RunToy(run).error, AnyOf(HasSubstr("plan"), HasSubstr("rank"),
                                         HasSubstr("all_gather.")));
  }
}

// ---- Errors -----------------------------------------------------------------

TEST(RecordErrorTest, RanksThatBeginDifferentOrdersAllLearnOfIt) {
  for (uint32_t stage : {0u, 2u, 3u}) {
    SCOPED_TRACE(stage);
    ToyRun run = RecordedRun(Order{});
    run.ranks = 2;
    SetStage(stage, &run);
    const std::string error =
        OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
          if (std::string m = toy.Build(); !m.empty()) return m;
          commsched_engine_t* engine = toy.engine();
          Order order = {kEmbed, kBlock0, kBlock1, kHead};
          if (rank == 1) std::swap(order[1], order[2]);
          commsched_status_t code =
              commsched_engine_step_begin(engine, nullptr);
          for (uint32_t m : order) {
            if (code == COMMSCHED_OK) {
              code = ForwardBegin(engine, m, 0);
            }
            if (code == COMMSCHED_OK) {
              code = ForwardEnd(engine, m, 0);
            }
          }
          if (code == COMMSCHED_OK) {
            code = BackwardBegin(engine, kHead, 0);
          }
          EXPECT_EQ(code, COMMSCHED_FAILED_PRECONDITION);
          EXPECT_THAT(commsched_engine_last_error(),
                      stage < 3 ? AnyOf(HasSubstr("plan"), HasSubstr("rank"))
                                : AnyOf(HasSubstr("all_gather.1.1"),
                                        HasSubstr("all_gather.3.2")));
          // It sticks.
          EXPECT_EQ(BackwardBegin(engine, kHead, 0),
                    COMMSCHED_FAILED_PRECONDITION);
          return "";
        });
    EXPECT_EQ(error, "");
  }
}

// Stage 3 needs all ranks for what one of them gathers.
TEST(RecordErrorTest, ABranchOfOneRankInTheRecordedForward) {
  for (uint32_t left_out : {kEmbed, kBlock0, kHead}) {
    SCOPED_TRACE(left_out);
    ToyRun run = RecordedRun(Order{kEmbed, kBlock0, kBlock1, kHead});
    run.engine.allow_skipped_modules = 1;
    run.skips = [left_out](const ToyPass& pass) {
      return pass.rank == 1 && pass.step == 0 && pass.module == left_out;
    };
    const std::vector<float> expected = ReferenceWeights(run);
    for (uint32_t stage : {0u, 1u, 2u}) {
      SetStage(stage, &run);
      const ToyResult result = RunToy(run);
      ASSERT_EQ(result.error, "");
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(result.weights[1][i], expected[i], 1e-5) << i;
      }
    }
    SetStage(3, &run);
    EXPECT_THAT(RunToy(run).error, HasSubstr("all_gather."));
  }
}

// Runs `body` on the only rank, built to record.
void OnOneRank(uint32_t stage,
               const std::function<void(commsched_engine_t*)>& body) {
  ToyRun run = RecordedRun(Order{});
  run.ranks = 1;
  SetStage(stage, &run);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    body(toy.engine());
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(RecordErrorTest, AModuleThatIsLeftOutIsNamedAndCanStillCome) {
  for (uint32_t stage : {1u, 3u}) {
    OnOneRank(stage, [](commsched_engine_t* engine) {
      ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
      for (uint32_t m : {kHead, kEmbed, kBlock0}) Forward(engine, m);
      ExpectRefused(BackwardBegin(engine, kBlock0, 0),
                    "module 2 'block1' was not begun in the forward that "
                    "records the order");
      Forward(engine, kBlock1);
      EXPECT_EQ(BackwardBegin(engine, kBlock1, 0), COMMSCHED_OK);
    });
  }
}

TEST(RecordTest, WhatAForwardGathersIsInTheCallersMemory) {
  LentMemory lent;
  const commsched_engine_memory_t memory = lent.Table();
  ToyRun run = RecordedRun(Order{});
  run.ranks = 2;
  run.engine.memory = &memory;
  SetStage(3, &run);
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        if (std::string m = toy.Build(); !m.empty()) return m;
        commsched_engine_t* engine = toy.engine();
        EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
        for (uint32_t module : {kBlock1, kEmbed}) {
          EXPECT_EQ(ForwardBegin(engine, module, 0), COMMSCHED_OK);
          for (uint32_t parameter : ToyModules()[module].used) {
            const void* values = nullptr;
            void* gradient = nullptr;
            EXPECT_EQ(commsched_engine_parameter_address(engine, parameter,
                                                         &values, &gradient),
                      COMMSCHED_OK);
            EXPECT_TRUE(lent.Holds(values)) << parameter;
          }
          EXPECT_EQ(ForwardEnd(engine, module, 0), COMMSCHED_OK);
        }
        return "";
      });
  EXPECT_EQ(error, "");
  EXPECT_TRUE(lent.has_all_back());
}

TEST(RecordErrorTest, CallsOutOfOrderNameWhatIsExpected) {
  OnOneRank(2, [](commsched_engine_t* engine) {
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    const char* any =
        "expected pass_begin of FORWARD of any module, micro-batch 0";
    ExpectRefused(BackwardBegin(engine, kHead, 0), any);
    ExpectRefused(ForwardBegin(engine, 4, 0), any);
    ExpectRefused(ForwardBegin(engine, kHead, 1), any);
    ExpectRefused(UpdateWith(engine, 0.1f), any);
    ExpectRefused(commsched_engine_record_order(engine), any);
    EXPECT_EQ(ForwardBegin(engine, kHead, 0), COMMSCHED_OK);
    ExpectRefused(
        ForwardEnd(engine, kEmbed, 0),
        "expected pass_end of FORWARD of module 3 'head', micro-batch 0");
    EXPECT_EQ(ForwardEnd(engine, kHead, 0), COMMSCHED_OK);
    ExpectRefused(
        BackwardBegin(engine, kEmbed, 0),
        "or pass_begin of BACKWARD of module 3 'head', micro-batch 0");
  });
}

TEST(RecordErrorTest, OnceRecordedAnotherOrderIsRefused) {
  OnOneRank(1, [](commsched_engine_t* engine) {
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    const uint32_t order[] = {kHead, kEmbed, kBlock1, kBlock0};
    for (uint32_t m : order) Forward(engine, m);
    for (int i = 3; i >= 0; --i) {
      EXPECT_EQ(BackwardBegin(engine, order[i], 0), COMMSCHED_OK);
      EXPECT_EQ(BackwardEnd(engine, order[i], 0), COMMSCHED_OK);
    }
    ExpectRefused(
        ForwardBegin(engine, kEmbed, 1),
        "expected pass_begin of FORWARD of module 3 'head', micro-batch 1; a "
        "program whose order has changed for good calls "
        "commsched_engine_record_order() between steps");
  });
}

TEST(RecordErrorTest, OfAModuleThatComesTwiceThePassIsNamed) {
  OnOneRank(2, [](commsched_engine_t* engine) {
    ASSERT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    for (uint32_t m : {kHead, kEmbed, kHead, kBlock0, kBlock1}) {
      Forward(engine, m);
    }
    for (uint32_t m : {kBlock1, kBlock0}) Backward(engine, m);
    ExpectRefused(
        BackwardBegin(engine, kEmbed, 0),
        "expected pass_begin of BACKWARD of module 3 'head', micro-batch 0, "
        "pass 2; a program");
    for (uint32_t m : {kHead, kEmbed}) Backward(engine, m);
    ExpectRefused(
        BackwardBegin(engine, kEmbed, 0),
        "expected pass_begin of BACKWARD of module 3 'head', micro-batch 0; "
        "a program");
    EXPECT_EQ(BackwardBegin(engine, kHead, 0), COMMSCHED_OK);
    ExpectRefused(
        BackwardEnd(engine, kEmbed, 0),
        "expected pass_end of BACKWARD of module 3 'head', micro-batch 0");
  });
}

TEST(RecordErrorTest, AnAbortReachesARankThatRecords) {
  ToyRun run = RecordedRun(Order{});
  run.ranks = 2;
  SetStage(3, &run);
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
        if (std::string m = toy.Build(); !m.empty()) return m;
        commsched_engine_t* engine = toy.engine();
        EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
        if (rank == 1) {
          commsched_engine_abort(engine, "disk full");
          return "";
        }
        EXPECT_EQ(ForwardBegin(engine, kEmbed, 0), COMMSCHED_ABORTED);
        EXPECT_THAT(commsched_engine_last_error(), HasSubstr("disk full"));
        return "";
      });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

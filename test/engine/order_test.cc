// Modules that do not come in the planned order are refused, and nothing has
// changed then.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/pass_calls.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kAdvice[] =
    "; a program whose order has changed for good calls "
    "commsched_engine_record_order() between steps";

struct Stage {
  uint32_t zero_stage;
  uint64_t max_live_bytes;
};
// Stage 3 with everything whole, and with room for a module at a time.
constexpr Stage kStages[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 80'000}};

ToyRun OrderedRun(const Stage& stage) {
  ToyRun run;
  run.ranks = 3;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  run.options.zero_stage = stage.zero_stage;
  run.options.max_live_bytes = stage.max_live_bytes;
  return run;
}

std::string CallOf(const std::string& kind, uint32_t module,
                   uint32_t micro_batch) {
  return "pass_begin of " + kind + " of module " + std::to_string(module) +
         " '" + ToyModules()[module].name + "', micro-batch " +
         std::to_string(micro_batch);
}

commsched_status_t Begin(commsched_engine_t* engine, bool backward,
                         uint32_t module, uint32_t micro_batch) {
  return backward ? BackwardBegin(engine, module, micro_batch)
                  : ForwardBegin(engine, module, micro_batch);
}

// Begins whatever there is but `next`: later modules and earlier ones, those
// that have run and those that have not, in both micro-batches.
void ExpectAllOthersRefused(commsched_engine_t* engine, const ToyBegin& next) {
  const std::string expected = CallOf(next.backward ? "BACKWARD"
                                      : next.again  ? "RECOMPUTE"
                                                    : "FORWARD",
                                      next.pass.module, next.pass.micro_batch);
  for (bool backward : {false, true}) {
    for (uint32_t module : {kEmbed, kBlock0, kBlock1, kHead}) {
      for (uint32_t mb : {0u, 1u}) {
        if (backward == next.backward && !next.again &&
            module == next.pass.module && mb == next.pass.micro_batch) {
          continue;
        }
        EXPECT_ENGINE_ERROR(
            Begin(engine, backward, module, mb), COMMSCHED_FAILED_PRECONDITION,
            "engine: " + CallOf(backward ? "BACKWARD" : "FORWARD", module, mb) +
                " was called; expected " + expected + kAdvice);
      }
    }
  }
}

// With mistakes on one rank in one step, which are `before_begin` of `run`, the
// weights have the bits of a run without any.
void ExpectSameBitsAsWithoutMistakes(ToyRun run) {
  std::atomic<int> times = 0;
  const auto mistakes = run.before_begin;
  run.before_begin = nullptr;
  const ToyResult right = RunToy(run);
  ASSERT_EQ(right.error, "");
  run.before_begin = [&](commsched_engine_t* engine, const ToyBegin& next) {
    if (next.pass.rank != 1 || next.pass.step != 1) return;
    ++times;
    mistakes(engine, next);
  };
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  EXPECT_GT(times.load(), 0);
  EXPECT_TRUE(SameBits(result.weights[0], right.weights[0]));
  EXPECT_TRUE(SameBits(result.weights[1], right.weights[1]));
}

TEST(OrderTest, WhateverIsNotNextIsNamedAndChangesNothing) {
  for (const Stage& stage : kStages) {
    SCOPED_TRACE(stage.zero_stage);
    ToyRun run = OrderedRun(stage);
    run.before_begin = ExpectAllOthersRefused;
    ExpectSameBitsAsWithoutMistakes(run);
  }
}

TEST(OrderTest, SoItIsWhereModulesAreRecomputed) {
  for (const Stage& stage : kStages) {
    SCOPED_TRACE(stage.zero_stage);
    ToyRun run = OrderedRun(stage);
    run.recomputed = {{kBlock0, kBlock1}};
    run.before_begin = ExpectAllOthersRefused;
    ExpectSameBitsAsWithoutMistakes(run);
  }
}

// What was left out is over: its forward, and its backward.
TEST(OrderTest, AModuleThatWasLeftOutDoesNotComeBack) {
  for (const Stage& stage : kStages) {
    SCOPED_TRACE(stage.zero_stage);
    ToyRun run = OrderedRun(stage);
    run.engine.allow_skipped_modules = 1;
    run.skips = [](const ToyPass& pass) {
      return pass.rank == 1 && pass.module == kBlock0;
    };
    run.before_begin = [](commsched_engine_t* engine, const ToyBegin& next) {
      if (next.backward || next.pass.module != kHead) return;
      const uint32_t mb = next.pass.micro_batch;
      for (bool backward : {false, true}) {
        EXPECT_ENGINE_ERROR(
            Begin(engine, backward, kBlock0, mb), COMMSCHED_FAILED_PRECONDITION,
            AllOf(HasSubstr(CallOf("FORWARD", kHead, mb) + ", or a later call"),
                  EndsWith(kAdvice)));
      }
    };
    ExpectSameBitsAsWithoutMistakes(run);
  }
}

TEST(OrderTest, AnEvaluationHasItsOrder) {
  for (const Stage& stage : kStages) {
    ToyRun run = OrderedRun(stage);
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      std::string message = toy.Build();
      commsched_engine_t* engine = toy.engine();
      EXPECT_EQ(commsched_engine_evaluation_begin(engine), COMMSCHED_OK);
      Forward(engine, kEmbed);
      if (rank == 2) {
        for (uint32_t module : {kEmbed, kBlock1}) {
          ExpectRefused(ForwardBegin(engine, module, 0),
                        "expected " + CallOf("FORWARD", kBlock0, 0) + kAdvice);
        }
      }
      for (uint32_t module : {kBlock0, kBlock1, kHead}) Forward(engine, module);
      EXPECT_EQ(commsched_engine_evaluation_end(engine), COMMSCHED_OK);
      return message.empty() ? toy.Step(0) : message;
    });
    EXPECT_EQ(error, "");
  }
}

// The mistake is one rank's: the others learn of it if that rank gives up.
TEST(OrderTest, ARankThatGivesUpTakesTheOthersAlong) {
  for (const Stage& stage : kStages) {
    const std::string error = OnRanks(OrderedRun(stage), [](ToyRank& toy,
                                                            int32_t rank) {
      std::string message = toy.Build();
      commsched_engine_t* engine = toy.engine();
      if (rank == 1) {
        EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
        ExpectRefused(ForwardBegin(engine, kBlock1, 0),
                      "expected " + CallOf("FORWARD", kEmbed, 0) + kAdvice);
        commsched_engine_abort(engine, commsched_engine_last_error());
      } else {
        EXPECT_NE(toy.Step(0), "");
      }
      EXPECT_ENGINE_ERROR(commsched_engine_drain(engine), COMMSCHED_ABORTED,
                          HasSubstr(CallOf("FORWARD", kBlock1, 0)));
      return message;
    });
    EXPECT_EQ(error, "");
  }
}

// Runs `body` in a step of the only rank.
void InAStep(const std::function<void(commsched_engine_t*)>& body) {
  ToyRun run = OrderedRun(kStages[2]);
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    EXPECT_EQ(commsched_engine_step_begin(toy.engine(), nullptr), COMMSCHED_OK);
    body(toy.engine());
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(OrderTest, AfterTheLastBackwardTheOptimizerIsNext) {
  InAStep([](commsched_engine_t* engine) {
    for (uint32_t mb : {0u, 1u}) {
      for (bool backward : {false, true}) {
        for (uint32_t i : {0u, 1u, 2u, 3u}) {
          const uint32_t module = backward ? 3 - i : i;
          EXPECT_EQ(Begin(engine, backward, module, mb), COMMSCHED_OK);
          EXPECT_EQ(backward ? BackwardEnd(engine, module, mb)
                             : ForwardEnd(engine, module, mb),
                    COMMSCHED_OK);
        }
      }
    }
    ExpectRefused(BackwardBegin(engine, kEmbed, 1), "expected update");
    EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
  });
}

// No order helps there.
TEST(OrderTest, WhatNoModuleIsIsNotAdvisedToBeRecorded) {
  InAStep([](commsched_engine_t* engine) {
    EXPECT_ENGINE_ERROR(ForwardBegin(engine, 4, 0),
                        COMMSCHED_FAILED_PRECONDITION,
                        EndsWith("expected " + CallOf("FORWARD", kEmbed, 0)));
    EXPECT_ENGINE_ERROR(ForwardBegin(engine, kEmbed, 2),
                        COMMSCHED_FAILED_PRECONDITION,
                        EndsWith("expected " + CallOf("FORWARD", kEmbed, 0)));
  });
}

}  // namespace
}  // namespace commsched::engine

// Steps of another shape than the planned one: fewer micro-batches, forwards
// without a backward, and steps that are cancelled.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/pass_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

ToyRun ShapeRun(uint32_t stage, uint64_t accumulate_bytes) {
  ToyRun run;
  run.ranks = 3;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 3;
  run.options.accumulate_bytes = accumulate_bytes;
  return run;
}

// Calls body(run) in every stage, with gradients that accumulate whole and with
// those that are reduced in each micro-batch.
template <typename Body>
void InEachStage(const Body& body) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (uint64_t accumulate_bytes : {0, 1}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", accumulate_bytes " +
                   std::to_string(accumulate_bytes));
      body(ShapeRun(stage, accumulate_bytes));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// The weights of `run` are those of a run that leaves out what `skips` says.
void ExpectAsIfLeftOut(const ToyRun& run,
                       const std::function<bool(const ToyPass&)>& skips) {
  ToyRun without = run;
  without.num_micro_batches = nullptr;
  without.skips_backward = nullptr;
  without.cancels = nullptr;
  without.passes.clear();
  without.engine.allow_skipped_modules = 1;
  without.skips = skips;
  const ToyResult expected = RunToy(without);
  ASSERT_EQ(expected.error, "");
  const ToyResult result = RunToy(run);
  ASSERT_EQ(result.error, "");
  for (const std::vector<float>& weights : result.weights) {
    EXPECT_TRUE(SameBits(weights, expected.weights[0]));
  }
}

TEST(StepShapeTest, FewerMicroBatchesAddZeros) {
  InEachStage([](ToyRun run) {
    run.num_micro_batches = [](int32_t rank, uint32_t step) {
      return 1 + (static_cast<uint32_t>(rank) + step) % 3;
    };
    ExpectAsIfLeftOut(run, [](const ToyPass& pass) {
      return pass.micro_batch >
             (static_cast<uint32_t>(pass.rank) + pass.step) % 3;
    });
  });
}

// Passes of the others lie between those that come.
TEST(StepShapeTest, FewerMicroBatchesOfAListAddZeros) {
  InEachStage([](ToyRun run) {
    for (uint32_t mb = 3; mb-- > 0;) {
      for (uint32_t m = 0; m < 4; ++m) {
        run.passes.push_back({COMMSCHED_FORWARD, m, mb, 0});
      }
    }
    for (uint32_t mb = 0; mb < 3; ++mb) {
      for (uint32_t m = 4; m-- > 0;) {
        run.passes.push_back({COMMSCHED_BACKWARD, m, mb, 0});
      }
    }
    run.num_micro_batches = [](int32_t rank, uint32_t) {
      return 1 + static_cast<uint32_t>(rank);
    };
    ExpectAsIfLeftOut(run, [](const ToyPass& pass) {
      return pass.micro_batch > static_cast<uint32_t>(pass.rank);
    });
  });
}

TEST(StepShapeTest, AForwardWithoutItsBackwardAddsZeros) {
  InEachStage([](ToyRun run) {
    run.engine.allow_skipped_modules = 1;
    const auto without = [](const ToyPass& pass) {
      return (static_cast<uint32_t>(pass.rank) + pass.step + pass.module +
              pass.micro_batch) %
                 3 ==
             0;
    };
    run.skips_backward = without;
    ExpectAsIfLeftOut(run, without);
  });
}

// ---- Cancelled on one rank --------------------------------------------------

// Before anything was sent.
TEST(StepCancelTest, OfOneRankAtAnyPointAddsZeros) {
  for (const uint32_t module : {kHead, kBlock1, kEmbed}) {
    for (const ToyCancel when : {ToyCancel::kBefore, ToyCancel::kWithin}) {
      for (const bool backward : {false, true}) {
        if (!backward && when == ToyCancel::kWithin) continue;
        SCOPED_TRACE(module);
        InEachStage([&](ToyRun run) {
          const uint32_t mb = run.options.accumulate_bytes == 0 ? 1 : 0;
          // In the first micro-batch nothing was sent before the head's.
          if (mb == 0 && module != kHead) return;
          run.cancels = [=](const ToyBegin& next) {
            const bool here = next.pass.rank == 1 && next.pass.step == 1 &&
                              next.pass.micro_batch == mb &&
                              next.pass.module == module &&
                              next.backward == backward;
            return here ? when : ToyCancel::kNot;
          };
          ExpectAsIfLeftOut(run, [](const ToyPass& pass) {
            return pass.rank == 1 && pass.step == 1;
          });
        });
        if (HasFailure()) return;
      }
    }
  }
}

// Reductions of earlier micro-batches keep what this rank has added.
TEST(StepCancelTest, WhatWasSentStays) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = ShapeRun(stage, /*accumulate_bytes=*/1);
    run.cancels = [](const ToyBegin& next) {
      const bool here = next.pass.rank == 2 && next.pass.step == 0 &&
                        next.pass.micro_batch == 1 && next.backward &&
                        next.pass.module == kHead;
      return here ? ToyCancel::kWithin : ToyCancel::kNot;
    };
    ExpectAsIfLeftOut(run, [](const ToyPass& pass) {
      return pass.rank == 2 && pass.step == 0 && pass.micro_batch >= 1;
    });
  }
}

TEST(StepCancelTest, ASumOfSixteenBitsIsTakenBack) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = ShapeRun(stage, /*accumulate_bytes=*/0);
    run.options.parameter_dtype = COMMSCHED_BF16;
    run.options.reduce_dtype = COMMSCHED_BF16;
    run.cancels = [](const ToyBegin& next) {
      const bool here = next.pass.rank == 0 && next.pass.step == 1 &&
                        next.pass.micro_batch == 1 && next.backward &&
                        next.pass.module == kBlock0;
      return here ? ToyCancel::kWithin : ToyCancel::kNot;
    };
    ExpectAsIfLeftOut(run, [](const ToyPass& pass) {
      return pass.rank == 0 && pass.step == 1;
    });
  }
}

// ---- Cancelled on all ranks -------------------------------------------------

// Trains the steps `steps`, of which all but those that `run` cancels count.
ToyResult RunSteps(const ToyRun& run, const std::vector<uint32_t>& steps) {
  ToyResult result;
  result.weights.resize(static_cast<size_t>(run.ranks));
  result.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
    if (std::string message = toy.Build(); !message.empty()) return message;
    for (const uint32_t step : steps) {
      if (std::string message = toy.Step(step); !message.empty()) {
        return message;
      }
    }
    const std::string message =
        toy.Weights(&result.weights[static_cast<size_t>(rank)]);
    if (rank == 0) commsched_engine_get_info(toy.engine(), &result.info);
    return message;
  });
  return result;
}

void ExpectNobodySteps(ToyRun run) {
  run.cancel_scope = COMMSCHED_CANCEL_ALL;
  const ToyResult expected = RunSteps(run, {0, 2, 3});
  ASSERT_EQ(expected.error, "");
  run.cancels = [last = run.ranks - 1](const ToyBegin& next) {
    const bool here = next.pass.rank == last && next.pass.step == 1 &&
                      next.pass.micro_batch == 1 && next.backward &&
                      next.pass.module == kBlock0;
    return here ? ToyCancel::kWithin : ToyCancel::kNot;
  };
  const ToyResult result = RunSteps(run, {0, 1, 2, 3});
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.info.skipped_steps, 1u);
  EXPECT_EQ(result.info.skipped_in_row, 0u);
  for (const std::vector<float>& weights : result.weights) {
    EXPECT_TRUE(SameBits(weights, expected.weights[0]));
  }
}

TEST(StepCancelTest, OfAllRanksIsAStepThatNobodyTakes) {
  for (uint32_t stage = 1; stage <= 3; ++stage) {
    for (const commsched_optimizer_table_t& optimizer :
         {commsched_adamw(0.9f, 0.95f, 1e-8f), commsched_sgd(0.9f, 0)}) {
      SCOPED_TRACE(stage);
      ToyRun run = ShapeRun(stage, stage % 2);
      run.optimizer = optimizer;
      run.engine.loss_scale = 1024;
      ExpectNobodySteps(run);
    }
  }
}

TEST(StepCancelTest, OfAllRanksHoldsForOneRankInEveryStage) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = ShapeRun(stage, 0);
    run.ranks = 1;
    ExpectNobodySteps(run);
  }
}

// Where one number is reduced, the order of additions is not known.
TEST(StepCancelTest, OfAllRanksHoldsForANormThatIsReduced) {
  for (uint32_t stage = 1; stage <= 3; ++stage) {
    ToyRun run = ShapeRun(stage, 0);
    run.ranks = 2;
    run.plan.deterministic = 0;
    run.engine.clip_norm = 0;
    run.options.check_finite = 1;
    ExpectNobodySteps(run);
  }
}

// With a word of its own: in every stage, with a norm or without.
TEST(StepCancelTest, OfAllRanksHoldsWithAWordOfItsOwn) {
  for (int32_t ranks = 2; ranks <= 4; ++ranks) {
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      for (const float clip_norm : {0.0f, 1.0f}) {
        for (const uint32_t deterministic : {0u, 1u}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " +
                       std::to_string(stage) + ", clip " +
                       std::to_string(clip_norm));
          ToyRun run = ShapeRun(stage, stage % 2);
          run.ranks = ranks;
          // One number is reduced by two ranks in one order.
          if (ranks > 2 && deterministic == 0) continue;
          run.plan.deterministic = deterministic;
          run.engine.clip_norm = clip_norm;
          run.options.cancel_all = 1;
          ExpectNobodySteps(run);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Of one rank, in the same step the caller has read the norm.
TEST(StepCancelTest, OfAllRanksHoldsAfterTheNormWasRead) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (const uint32_t deterministic : {0u, 1u}) {
      SCOPED_TRACE(stage);
      ToyRun run = ShapeRun(stage, 0);
      run.ranks = 2;
      run.plan.deterministic = deterministic;
      run.options.cancel_all = 1;
      run.engine.loss_scale = 1024;
      const ToyResult expected = RunSteps(run, {0, 2});
      ASSERT_EQ(expected.error, "");
      ToyResult result;
      result.weights.resize(2);
      result.error =
          OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
            RETURN_MESSAGE_IF_ERROR(toy.Build());
            RETURN_MESSAGE_IF_ERROR(toy.Step(0));
            RETURN_MESSAGE_IF_ERROR(toy.ForwardBackward(1));
            double norm = 0;
            RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(toy.engine(), &norm));
            EXPECT_GT(norm, 0);
            if (rank == 1) {
              RETURN_MESSAGE_IF_ERROR(commsched_engine_step_cancel(
                  toy.engine(), COMMSCHED_CANCEL_ALL));
            }
            RETURN_MESSAGE_IF_ERROR(UpdateWith(toy.engine(), 0.1f));
            RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(toy.engine()));
            RETURN_MESSAGE_IF_ERROR(toy.Step(2));
            return toy.Weights(&result.weights[static_cast<size_t>(rank)]);
          });
      ASSERT_EQ(result.error, "");
      for (const std::vector<float>& weights : result.weights) {
        EXPECT_TRUE(SameBits(weights, expected.weights[0]));
      }
    }
  }
}

// ---- Order of calls ---------------------------------------------------------

TEST(StepCancelTest, ComesWithinAStepOnly) {
  ToyRun run = ShapeRun(1, 0);
  run.ranks = 2;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
        std::string message = toy.Build();
        commsched_engine_t* engine = toy.engine();
        const auto cancel = [&](commsched_cancel_scope_t scope) {
          return commsched_engine_step_cancel(engine, scope);
        };
        EXPECT_ENGINE_ERROR(cancel(0), COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("step_cancel was called; expected "
                                      "step_begin"));
        EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
        EXPECT_ENGINE_ERROR(cancel(2), COMMSCHED_INVALID_ARGUMENT,
                            HasSubstr("scope of step_cancel is 2"));
        EXPECT_EQ(cancel(COMMSCHED_CANCEL_LOCAL), COMMSCHED_OK);
        EXPECT_ENGINE_ERROR(ForwardBegin(engine, kEmbed, 0),
                            COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("expected update"));
        EXPECT_EQ(cancel(COMMSCHED_CANCEL_LOCAL), COMMSCHED_OK);
        EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
        EXPECT_EQ(cancel(COMMSCHED_CANCEL_ALL), COMMSCHED_OK);
        EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
        EXPECT_EQ(commsched_engine_evaluation_begin(engine), COMMSCHED_OK);
        EXPECT_ENGINE_ERROR(cancel(0), COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("step_cancel was called"));
        for (uint32_t m = 0; m < 4; ++m) {
          EXPECT_EQ(ForwardBegin(engine, m, 0), COMMSCHED_OK);
          EXPECT_EQ(ForwardEnd(engine, m, 0), COMMSCHED_OK);
        }
        EXPECT_EQ(commsched_engine_evaluation_end(engine), COMMSCHED_OK);
        (void)rank;
        return message.empty() ? toy.Step(1) : message;
      });
  EXPECT_EQ(error, "");
}

TEST(StepCancelTest, OfAllRanksNeedsANormThatRanksExchange) {
  for (const bool has_norm : {false, true}) {
    ToyRun run = ShapeRun(has_norm ? 0 : 1, 0);
    run.ranks = 2;
    run.engine.clip_norm = has_norm ? 1.0f : 0;
    const std::string error =
        OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
          std::string message = toy.Build();
          commsched_engine_t* engine = toy.engine();
          EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
          EXPECT_ENGINE_ERROR(
              commsched_engine_step_cancel(engine, COMMSCHED_CANCEL_ALL),
              COMMSCHED_FAILED_PRECONDITION,
              HasSubstr(has_norm ? "in stage 0, in which no rank sends sums of "
                                   "its own: set cancel_all"
                                 : "set cancel_all or check_finite"));
          // Nothing has changed.
          EXPECT_EQ(ForwardBegin(engine, kEmbed, 0), COMMSCHED_OK);
          EXPECT_EQ(
              commsched_engine_step_cancel(engine, COMMSCHED_CANCEL_LOCAL),
              COMMSCHED_OK);
          EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
          EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
          return message;
        });
    EXPECT_EQ(error, "");
  }
}

TEST(StepShapeTest, MoreMicroBatchesThanPlannedAreRefused) {
  ToyRun run = ShapeRun(1, 0);
  run.ranks = 1;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        std::string message = toy.Build();
        commsched_step_desc_t desc = commsched_step_desc_init();
        desc.micro_batches = 4;
        EXPECT_ENGINE_ERROR(commsched_engine_step_begin(toy.engine(), &desc),
                            COMMSCHED_INVALID_ARGUMENT,
                            HasSubstr("step_begin of 4 micro-batches; 3 are "
                                      "planned"));
        desc.struct_size = 0;
        EXPECT_ENGINE_ERROR(commsched_engine_step_begin(toy.engine(), &desc),
                            COMMSCHED_INVALID_ARGUMENT, HasSubstr("desc"));
        desc = commsched_step_desc_init();
        desc.micro_batches = 1;
        EXPECT_EQ(commsched_engine_step_begin(toy.engine(), &desc),
                  COMMSCHED_OK);
        EXPECT_ENGINE_ERROR(UpdateWith(toy.engine(), 0.1f),
                            COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("expected pass_begin of FORWARD of "
                                      "module 0 'embed', micro-batch 0"));
        return message;
      });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

// Gradients that are ready before the pass that adds to them is over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/pass_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"
#include "test/support/await.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

ToyRun ReadyRun(uint32_t stage, uint64_t accumulate_bytes) {
  ToyRun run;
  run.ranks = 3;
  run.steps = 2;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  run.options.accumulate_bytes = accumulate_bytes;
  return run;
}

// Whatever is said of them, and by whom, the weights are those without.
void ExpectTheSameWeights(ToyRun run) {
  run.options.gradient_ready = 0;
  const ToyResult expected = RunToy(run);
  ASSERT_EQ(expected.error, "");
  run.options.gradient_ready = 1;
  for (uint32_t kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE(kind);
    run.ready = [kind](const ToyPass& pass, uint32_t parameter) {
      const uint32_t turn = static_cast<uint32_t>(pass.rank) + pass.step +
                            pass.micro_batch + parameter;
      return kind == 0 || (kind == 1 && turn % 2 == 0);
    };
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    for (const std::vector<float>& weights : result.weights) {
      EXPECT_TRUE(SameBits(weights, expected.weights[0]));
    }
  }
}

TEST(GradientReadyTest, ChangesNoWeights) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (uint64_t accumulate_bytes : {0, 1}) {
      for (uint32_t dtype : {COMMSCHED_F32, COMMSCHED_BF16}) {
        SCOPED_TRACE("stage " + std::to_string(stage) + ", accumulate_bytes " +
                     std::to_string(accumulate_bytes) + ", dtype " +
                     std::to_string(dtype));
        ToyRun run = ReadyRun(stage, accumulate_bytes);
        run.options.parameter_dtype = dtype;
        run.options.reduce_dtype = dtype;
        ExpectTheSameWeights(run);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GradientReadyTest, ChangesNoWeightsInHalvesOfABackward) {
  for (uint32_t stage : {1u, 3u}) {
    ToyRun run = ReadyRun(stage, 1);
    for (uint32_t mb = 0; mb < 2; ++mb) {
      for (const commsched_pass_kind_t kind :
           {COMMSCHED_FORWARD, COMMSCHED_BACKWARD_INPUT,
            COMMSCHED_BACKWARD_WEIGHT}) {
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t module = kind == COMMSCHED_FORWARD ? i : 3 - i;
          run.passes.push_back({kind, module, mb, 0});
        }
      }
    }
    ExpectTheSameWeights(run);
  }
}

TEST(GradientReadyTest, ChangesNoWeightsOfAStepThatIsCancelledOrLeavesOut) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    ToyRun run = ReadyRun(stage, 0);
    run.engine.allow_skipped_modules = 1;
    run.skips = [](const ToyPass& pass) {
      return pass.rank == 2 && pass.module == kBlock1;
    };
    run.cancels = [](const ToyBegin& next) {
      const bool here = next.pass.rank == 1 && next.pass.step == 1 &&
                        next.pass.micro_batch == 0 && next.backward &&
                        next.pass.module == kBlock0;
      return here ? ToyCancel::kWithin : ToyCancel::kNot;
    };
    ExpectTheSameWeights(run);
  }
}

TEST(GradientReadyTest, AllocatesNothingOnceWarm) {
  ToyRun run = ReadyRun(3, 1);
  run.options.gradient_ready = 1;
  run.ready = [](const ToyPass&, uint32_t) { return true; };
  const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

uint64_t LaunchesOf(commsched_engine_t* engine) {
  commsched_session_counters_t counters = commsched_session_counters_init();
  EXPECT_EQ(commsched_session_get_counters(commsched_engine_session(engine),
                                           &counters),
            COMMSCHED_OK);
  return counters.launches;
}

// Both ranks stay in the pass until the reduction has gone out.
TEST(GradientReadyTest, TheLastOfABucketIssuesItsReductionWithinThePass) {
  ToyRun run = ReadyRun(1, 0);
  run.ranks = 2;
  run.options.micro_batches = 1;
  run.options.gradient_ready = 1;
  run.plan.coalesce_bytes = 0;
  std::atomic<int> ready{0};
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        RETURN_MESSAGE_IF_ERROR(toy.Build());
        commsched_engine_t* engine = toy.engine();
        RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine, nullptr));
        for (uint32_t m = 0; m < 4; ++m) {
          RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
          RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
        }
        for (uint32_t m = 4; m-- > 0;) {
          RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine, m, 0));
          if (m == kBlock0) {
            const uint64_t before = LaunchesOf(engine);
            void* gradient = nullptr;
            // Buckets of their own.
            for (uint32_t p : ToyModules()[kBlock0].used) {
              RETURN_MESSAGE_IF_ERROR(
                  commsched_engine_gradient_begin(engine, p, &gradient));
              EXPECT_EQ(static_cast<float*>(gradient)[0], 0.0f);
            }
            RETURN_MESSAGE_IF_ERROR(commsched_engine_gradient_ready(
                engine, ToyModules()[kBlock0].used[1]));
            ++ready;
            EXPECT_TRUE(test::Await(
                [&] { return ready == 2 && LaunchesOf(engine) > before; }));
          }
          RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine, m, 0));
        }
        RETURN_MESSAGE_IF_ERROR(UpdateWith(engine, 0.1f));
        return Message(commsched_engine_step_end(engine));
      });
  EXPECT_EQ(error, "");
}

TEST(GradientReadyTest, WhatDoesNotAddToAGradientIsRefused) {
  ToyRun run = ReadyRun(1, 0);
  run.ranks = 1;
  run.options.gradient_ready = 1;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        RETURN_MESSAGE_IF_ERROR(toy.Build());
        commsched_engine_t* engine = toy.engine();
        const auto ready = [&](uint32_t p) {
          return commsched_engine_gradient_ready(engine, p);
        };
        void* gradient = nullptr;
        EXPECT_ENGINE_ERROR(ready(0), COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("gradient_ready of 'head.norm' was "
                                      "called; expected step_begin"));
        RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine, nullptr));
        for (uint32_t m = 0; m < 4; ++m) {
          RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
          if (m == kHead) {
            EXPECT_ENGINE_ERROR(ready(0), COMMSCHED_FAILED_PRECONDITION,
                                HasSubstr("gradient_ready of 'head.norm' in "
                                          "FORWARD of module 3 'head', "
                                          "micro-batch 0, which does not add"));
          }
          RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
        }
        RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine, kHead, 0));
        EXPECT_ENGINE_ERROR(ready(2), COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("gradient_ready of 'block0.weight' in "
                                      "BACKWARD of module 3 'head'"));
        EXPECT_ENGINE_ERROR(
            commsched_engine_gradient_begin(engine, 2, &gradient),
            COMMSCHED_FAILED_PRECONDITION, HasSubstr("gradient_begin of"));
        EXPECT_ENGINE_ERROR(ready(9), COMMSCHED_NOT_FOUND, HasSubstr("9"));
        EXPECT_EQ(commsched_engine_gradient_begin(engine, 0, &gradient),
                  COMMSCHED_OK);
        EXPECT_EQ(ready(0), COMMSCHED_OK);
        EXPECT_ENGINE_ERROR(ready(0), COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("was ready in this pass before"));
        EXPECT_ENGINE_ERROR(
            commsched_engine_gradient_begin(engine, 0, &gradient),
            COMMSCHED_FAILED_PRECONDITION,
            HasSubstr("gradient_begin of 'head.norm', which was ready in this "
                      "pass before"));
        RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine, kHead, 0));
        return LeaveStep(engine);
      });
  EXPECT_EQ(error, "");
}

TEST(GradientReadyTest, IsOfEnginesThatAskForIt) {
  ToyRun run = ReadyRun(1, 0);
  run.ranks = 1;
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        RETURN_MESSAGE_IF_ERROR(toy.Build());
        EXPECT_ENGINE_ERROR(commsched_engine_gradient_ready(toy.engine(), 0),
                            COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("gradient_ready of 'head.norm', but "
                                      "gradient_ready is 0"));
        return "";
      });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

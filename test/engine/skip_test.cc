// Modules that some ranks, steps or micro-batches leave out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/float_address.h"
#include "test/engine/pass_calls.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;

ToyRun SkippingRun() {
  ToyRun run;
  run.ranks = 3;
  run.engine.allow_skipped_modules = 1;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  return run;
}

// Stage 3 has room for one module at a time.
void SetStageForSkips(uint32_t stage, ToyRun* run) {
  run->options.zero_stage = stage;
  run->options.max_live_bytes = stage == 3 ? 120'000 : 0;
}

void ExpectClose(const std::vector<float>& weights,
                 const std::vector<float>& expected) {
  ASSERT_EQ(weights.size(), expected.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_NEAR(weights[i], expected[i], 1e-5) << i;
  }
}

// In every stage the weights are those of a plain loop, and of stage 0 to the
// bit.
void ExpectWeightsOfAPlainLoopWithSkips(ToyRun run) {
  const std::vector<float> expected = ReferenceWeights(run);
  std::vector<float> first;
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    SetStageForSkips(stage, &run);
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    for (const std::vector<float>& weights : result.weights) {
      if (first.empty()) first = weights;
      ExpectClose(weights, expected);
      EXPECT_EQ(std::memcmp(weights.data(), first.data(),
                            first.size() * sizeof(float)),
                0);
    }
  }
}

TEST(SkipTest, ABranchOfOneRankAddsZeros) {
  ToyRun run = SkippingRun();
  run.skips = [](const ToyPass& pass) {
    return pass.rank == 1 && pass.module == kBlock0;
  };
  ExpectWeightsOfAPlainLoopWithSkips(run);
}

TEST(SkipTest, ABranchOfAllRanksLeavesItsGradientsZero) {
  ToyRun run = SkippingRun();
  run.skips = [](const ToyPass& pass) { return pass.module == kBlock1; };
  ExpectWeightsOfAPlainLoopWithSkips(run);
}

TEST(SkipTest, BranchesAlternateOverStepsRanksAndMicroBatches) {
  ToyRun run = SkippingRun();
  run.steps = 6;
  run.skips = [](const ToyPass& pass) {
    const uint32_t turn =
        pass.step + pass.micro_batch + static_cast<uint32_t>(pass.rank);
    return pass.module == (turn % 2 == 0 ? kBlock0 : kBlock1);
  };
  ExpectWeightsOfAPlainLoopWithSkips(run);
}

TEST(SkipTest, TheFirstAndTheLastModuleCanBeLeftOut) {
  ToyRun run = SkippingRun();
  run.skips = [](const ToyPass& pass) {
    return pass.rank == 0 ? pass.module == kEmbed : pass.module == kHead;
  };
  ExpectWeightsOfAPlainLoopWithSkips(run);
}

TEST(SkipTest, ARankCanLeaveOutMicroBatchesAndWholeSteps) {
  ToyRun run = SkippingRun();
  run.skips = [](const ToyPass& pass) {
    return pass.rank == 2 && (pass.step == 1 || pass.micro_batch == 1);
  };
  ExpectWeightsOfAPlainLoopWithSkips(run);
}

TEST(SkipTest, WorksWithGradientsThatAreReducedInEachMicroBatch) {
  ToyRun run = SkippingRun();
  run.options.micro_batches = 3;
  run.options.accumulate_bytes = 1;
  run.skips = [](const ToyPass& pass) {
    return (pass.micro_batch + pass.module) % 3 == 0;
  };
  ExpectWeightsOfAPlainLoopWithSkips(run);
}

TEST(SkipTest, AllocatesNothingOnceWarm) {
  ToyRun run = SkippingRun();
  SetStageForSkips(3, &run);
  run.skips = [](const ToyPass& pass) {
    return pass.module == (pass.step % 2 == 0 ? kBlock0 : kBlock1);
  };
  const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

TEST(SkipTest, AnEvaluationLeavesModulesOutAsWell) {
  for (uint32_t stage : {1u, 3u}) {
    ToyRun run = SkippingRun();
    SetStageForSkips(stage, &run);
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      std::string message = toy.Build();
      commsched_engine_t* engine = toy.engine();
      EXPECT_EQ(commsched_engine_evaluation_begin(engine), COMMSCHED_OK);
      if (rank == 1) {
        EXPECT_EQ(ForwardBegin(engine, kBlock1, 0), COMMSCHED_OK);
        const float* values = nullptr;
        float* gradient = nullptr;
        EXPECT_EQ(FloatAddress(engine, 4, &values, &gradient), COMMSCHED_OK);
        EXPECT_EQ(values[5], ToyInitialValue(4, 5));
        EXPECT_EQ(ForwardEnd(engine, kBlock1, 0), COMMSCHED_OK);
      }
      EXPECT_EQ(commsched_engine_evaluation_end(engine), COMMSCHED_OK);
      return message.empty() ? toy.Step(0) : message;
    });
    EXPECT_EQ(error, "");
  }
}

// Runs `body` in a step of the only rank.
template <typename Body>
void InAStep(const Body& body) {
  ToyRun run = SkippingRun();
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    EXPECT_EQ(commsched_engine_step_begin(toy.engine(), nullptr), COMMSCHED_OK);
    body(toy.engine());
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(SkipOrderTest, AModuleBehindIsRefused) {
  InAStep([](commsched_engine_t* engine) {
    Forward(engine, kBlock1);
    ExpectRefused(
        ForwardBegin(engine, kBlock0, 0),
        "pass_begin of FORWARD of module 1 'block0', micro-batch 0 was "
        "called; expected pass_begin of FORWARD of module 3 'head', "
        "micro-batch 0, or a later call");
    Forward(engine, kHead);
    Backward(engine, kHead);
    Backward(engine, kBlock1);
  });
}

TEST(SkipOrderTest, ABackwardNeedsItsForward) {
  InAStep([](commsched_engine_t* engine) {
    Forward(engine, kEmbed);
    Forward(engine, kBlock1);
    ExpectRefused(BackwardBegin(engine, kHead, 0),
                  "expected pass_begin of FORWARD of module 3 'head'");
    Backward(engine, kBlock1);
    ExpectRefused(BackwardBegin(engine, kBlock0, 0),
                  "expected pass_begin of BACKWARD of module 0 'embed'");
    Backward(engine, kEmbed);
  });
}

TEST(SkipOrderTest, ABackwardThatWasLeftOutDoesNotComeBack) {
  InAStep([](commsched_engine_t* engine) {
    Forward(engine, kEmbed);
    Forward(engine, kBlock0);
    Backward(engine, kEmbed);
    ExpectRefused(BackwardBegin(engine, kBlock0, 0),
                  "expected pass_begin of FORWARD of module 0 'embed', "
                  "micro-batch 1, or a later call");
    EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
  });
}

TEST(SkipOrderTest, NothingIsLeftOutWithinAModule) {
  InAStep([](commsched_engine_t* engine) {
    EXPECT_EQ(ForwardBegin(engine, kBlock0, 0), COMMSCHED_OK);
    ExpectRefused(ForwardBegin(engine, kBlock1, 0),
                  "expected pass_end of FORWARD of module 1 'block0'");
    ExpectRefused(ForwardEnd(engine, kBlock1, 0),
                  "expected pass_end of FORWARD of module 1 'block0'");
    EXPECT_EQ(ForwardEnd(engine, kBlock0, 0), COMMSCHED_OK);
  });
}

}  // namespace
}  // namespace commsched::engine

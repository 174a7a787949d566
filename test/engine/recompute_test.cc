// Activation checkpointing: forwards that run again within backward.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ToyRun RecomputingRun() {
  ToyRun run;
  run.ranks = 3;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  run.recomputed = {{kBlock0, kBlock1}};
  return run;
}

void SetStageAndLimit(uint32_t stage, ToyRun* run) {
  run->options.zero_stage = stage;
  run->options.max_live_bytes = stage == 3 ? 110'000 : 0;
}

// Those of a run that keeps all activations, for which `run` has no segments.
void ExpectBitsOfNoRecomputation(ToyRun run) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    SetStageAndLimit(stage, &run);
    const ToyResult result = RunToy(run);
    ToyRun plain = run;
    plain.recomputed.clear();
    const ToyResult expected = RunToy(plain);
    ASSERT_EQ(result.error, "");
    ASSERT_EQ(expected.error, "");
    for (const std::vector<float>& weights : result.weights) {
      ASSERT_EQ(weights.size(), expected.weights[0].size());
      EXPECT_EQ(std::memcmp(weights.data(), expected.weights[0].data(),
                            weights.size() * sizeof(float)),
                0);
    }
    EXPECT_EQ(result.info.parameter_bytes, expected.info.parameter_bytes);
    EXPECT_TRUE(stage < 3 || result.info.arena_bytes <= 110'000);
  }
}

TEST(RecomputeTest, ASegmentOfTwoModules) {
  ExpectBitsOfNoRecomputation(RecomputingRun());
}

TEST(RecomputeTest, EachModuleByItself) {
  ToyRun run = RecomputingRun();
  run.recomputed = {
      {kEmbed, kEmbed}, {kBlock0, kBlock0}, {kBlock1, kBlock1}, {kHead, kHead}};
  ExpectBitsOfNoRecomputation(run);
}

TEST(RecomputeTest, AllModulesAsOneSegment) {
  ToyRun run = RecomputingRun();
  run.recomputed = {{kEmbed, kHead}};
  run.options.micro_batches = 3;
  run.options.accumulate_bytes = 1;
  ExpectBitsOfNoRecomputation(run);
}

TEST(RecomputeTest, ModulesLeftOutAreNotRecomputed) {
  ToyRun run = RecomputingRun();
  run.engine.allow_skipped_modules = 1;
  run.steps = 4;
  run.skips = [](const ToyPass& pass) {
    return pass.module == (pass.step % 2 == 0 ? kBlock0 : kBlock1) ||
           (pass.rank == 1 && pass.step == 3);
  };
  ExpectBitsOfNoRecomputation(run);
}

TEST(RecomputeTest, ARecordedOrderSetsASegmentApart) {
  ToyRun run = RecomputingRun();
  run.order = [](uint32_t) {
    return std::vector<uint32_t>{kBlock1, kEmbed, kBlock0, kBlock1, kHead};
  };
  ExpectBitsOfNoRecomputation(run);
}

TEST(RecomputeTest, SixteenBits) {
  for (const uint32_t dtype : {COMMSCHED_BF16, COMMSCHED_F16}) {
    for (const uint64_t accumulate_bytes : {0, 1}) {
      ToyRun run = RecomputingRun();
      run.options.micro_batches = 3;
      run.options.parameter_dtype = dtype;
      run.options.reduce_dtype = dtype;
      run.options.accumulate_bytes = accumulate_bytes;
      run.engine.loss_scale = 1024;
      SCOPED_TRACE(dtype);
      ExpectBitsOfNoRecomputation(run);
    }
  }
}

// Its forwards follow those that are recorded without anything between.
TEST(RecomputeTest, ARecordedOrderEndsInASegment) {
  ToyRun run = RecomputingRun();
  for (const std::vector<uint32_t>& order :
       {std::vector<uint32_t>{kEmbed, kHead, kBlock0, kBlock1},
        std::vector<uint32_t>{kHead, kBlock1, kEmbed, kBlock1, kBlock0, kBlock1,
                              kBlock0}}) {
    run.order = [&](uint32_t) { return order; };
    ExpectBitsOfNoRecomputation(run);
  }
  run.recomputed = {{kEmbed, kHead}};
  run.order = [](uint32_t step) {
    return step < 2 ? std::vector<uint32_t>{kBlock0, kHead, kEmbed, kBlock1}
                    : std::vector<uint32_t>{kBlock1, kEmbed, kHead, kBlock0};
  };
  ExpectBitsOfNoRecomputation(run);
}

// What the segment reads is there for its forward, and not before.
TEST(RecomputeTest, BucketsAreGatheredForTheForwardThatRunsAgain) {
  ToyRun run = RecomputingRun();
  run.ranks = 4;
  run.options.micro_batches = 1;
  run.options.zero_stage = 3;
  run.options.max_live_bytes = 2 * (16384 + 4096) + 8192 + 4096;
  const Planned planned = PlanOf(run);
  ASSERT_EQ(planned.error, "");
  std::string due;
  for (const auto& launch : planned.plan["launches"]) {
    for (const std::string member : launch["members"]) {
      if (member == "all_gather.1.1") due = launch["due_after"];
    }
  }
  EXPECT_THAT(due, HasSubstr("[0]."));
  EXPECT_THAT(due, Not(HasSubstr("recompute[0].block1")));
}

TEST(RecomputeOrderTest, BackwardExpectsTheForwardsFirst) {
  ToyRun run = RecomputingRun();
  run.ranks = 1;
  run.options.micro_batches = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    commsched_engine_t* engine = toy.engine();
    const auto forward = [&](commsched_pass_kind_t kind, uint32_t m) {
      EXPECT_EQ(PassBegin(engine, kind, m, 0), COMMSCHED_OK);
      EXPECT_EQ(PassEnd(engine, kind, m, 0), COMMSCHED_OK);
    };
    const auto backward = [&](uint32_t m) {
      EXPECT_EQ(BackwardBegin(engine, m, 0), COMMSCHED_OK);
      EXPECT_EQ(BackwardEnd(engine, m, 0), COMMSCHED_OK);
    };
    EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    for (uint32_t m : {kEmbed, kBlock0, kBlock1, kHead}) {
      forward(COMMSCHED_FORWARD, m);
    }
    backward(kHead);
    EXPECT_EQ(BackwardBegin(engine, kBlock1, 0), COMMSCHED_FAILED_PRECONDITION);
    EXPECT_THAT(commsched_engine_last_error(),
                HasSubstr("expected pass_begin of RECOMPUTE of module 1 "
                          "'block0'"));
    EXPECT_EQ(ForwardBegin(engine, kBlock0, 0), COMMSCHED_FAILED_PRECONDITION);
    for (uint32_t m : {kBlock0, kBlock1}) forward(COMMSCHED_RECOMPUTE, m);
    for (uint32_t m : {kBlock1, kBlock0, kEmbed}) backward(m);
    EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
    EXPECT_EQ(commsched_model_recompute(toy.model(), kHead, kHead),
              COMMSCHED_FAILED_PRECONDITION);
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(RecomputeOrderTest, SegmentsDoNotOverlap) {
  ToyRun run = RecomputingRun();
  run.ranks = 1;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    EXPECT_EQ(commsched_model_recompute(toy.model(), kBlock1, kHead),
              COMMSCHED_ALREADY_EXISTS);
    EXPECT_THAT(commsched_engine_last_error(), HasSubstr("'block1'"));
    EXPECT_EQ(commsched_model_recompute(toy.model(), kHead, kEmbed),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_EQ(commsched_model_recompute(toy.model(), kHead, 4),
              COMMSCHED_NOT_FOUND);
    EXPECT_EQ(commsched_model_recompute(toy.model(), kHead, kHead),
              COMMSCHED_OK);
    return std::string();
  });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

// Steps whose passes are a list: schedules of pipelines, backwards in halves,
// forwards without a backward.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/pass_calls.h"
#include "test/engine/pass_lists.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

ToyRun ListRun(uint32_t stage, int32_t ranks, uint64_t accumulate_bytes) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = 2;
  run.options.zero_stage = stage;
  run.options.micro_batches = kListWindow;
  run.options.bucket_bytes = 4096;
  run.options.accumulate_bytes = accumulate_bytes;
  return run;
}

class PassListRunTest : public ::testing::TestWithParam<PassSchedule> {
 protected:
  // Gradients that are reduced in each micro-batch are added in one order
  // whatever the passes, and so are those of parameters that one module uses:
  // of the tied one the whole sums differ by rounding.
  static void ExpectTheWeightsOfTheDefaultOrder(ToyRun run) {
    const ToyResult expected = RunToy(run);
    ASSERT_EQ(expected.error, "");
    run.passes = GetParam().list();
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    for (const std::vector<float>& weights : result.weights) {
      if (run.options.accumulate_bytes == 1) {
        EXPECT_TRUE(SameBits(weights, expected.weights[0]));
        continue;
      }
      ASSERT_EQ(weights.size(), expected.weights[0].size());
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], expected.weights[0][i], 1e-5) << i;
      }
    }
  }
};

TEST_P(PassListRunTest, HasTheWeightsOfTheDefaultOrder) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (int32_t ranks : {1, 2, 4}) {
      for (uint64_t accumulate_bytes : {0, 1}) {
        SCOPED_TRACE("stage " + std::to_string(stage) + ", " +
                     std::to_string(ranks) + " ranks, accumulate_bytes " +
                     std::to_string(accumulate_bytes));
        ExpectTheWeightsOfTheDefaultOrder(
            ListRun(stage, ranks, accumulate_bytes));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A bucket of all modules: micro-batches overlap wherever they can.
TEST_P(PassListRunTest, HasThemInOneBucketAndWithoutRoomToSpare) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    ToyRun run = ListRun(stage, 2, /*accumulate_bytes=*/1);
    run.options.bucket_bytes = 1 << 20;
    ExpectTheWeightsOfTheDefaultOrder(run);
    if (stage < 3) continue;
    run.options.bucket_bytes = 16384;
    run.options.max_live_bytes = 300'000;
    ExpectTheWeightsOfTheDefaultOrder(run);
  }
}

// Gradients of 16 bits are added to sums of fp32.
TEST_P(PassListRunTest, HasThemInSixteenBits) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (uint64_t accumulate_bytes : {0, 1}) {
      SCOPED_TRACE(stage);
      ToyRun run = ListRun(stage, 2, accumulate_bytes);
      run.options.parameter_dtype = COMMSCHED_BF16;
      run.options.reduce_dtype = COMMSCHED_BF16;
      run.options.bucket_bytes = 1 << 20;
      const ToyResult expected = RunToy(run);
      ASSERT_EQ(expected.error, "");
      run.passes = GetParam().list();
      const ToyResult result = RunToy(run);
      ASSERT_EQ(result.error, "");
      for (const std::vector<float>& weights : result.weights) {
        EXPECT_TRUE(SameBits(weights, expected.weights[0]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PassListRunTest,
                         ::testing::ValuesIn(kSchedules),
                         [](const auto& info) { return info.param.name; });

std::string FingerprintOf(const ToyRun& run) {
  const Planned planned = PlanOf(run);
  EXPECT_EQ(planned.error, "");
  return planned.plan.at("fingerprint").dump();
}

TEST(PassListTest, TheDefaultOrderAsAListIsTheSamePlan) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = ListRun(stage, 2, /*accumulate_bytes=*/16384);
    const std::string expected = FingerprintOf(run);
    run.passes = AsByDefault();
    EXPECT_EQ(FingerprintOf(run), expected);
    run.passes = GPipe();
    EXPECT_NE(FingerprintOf(run), expected);
  }
}

// The halves that make gradients of parameters read none of their values.
TEST(PassListTest, NothingIsGatheredForTheSecondHalfOfABackward) {
  ToyRun run = ListRun(3, 2, /*accumulate_bytes=*/0);
  run.passes = ZeroBubble();
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    commsched_engine_t* engine = toy.engine();
    EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    const void* values = nullptr;
    void* gradient = nullptr;
    for (const commsched_pass_t& pass : run.passes) {
      EXPECT_EQ(commsched_engine_pass_begin(engine, &pass), COMMSCHED_OK);
      const uint32_t parameter = ToyModules()[pass.module].used[0];
      EXPECT_EQ(commsched_engine_parameter_address(engine, parameter, &values,
                                                   &gradient),
                COMMSCHED_OK);
      EXPECT_EQ(values == nullptr, pass.kind == COMMSCHED_BACKWARD_WEIGHT);
      EXPECT_EQ(commsched_engine_pass_end(engine, &pass), COMMSCHED_OK);
    }
    EXPECT_EQ(UpdateWith(engine, 0.1f), COMMSCHED_OK);
    EXPECT_EQ(commsched_engine_step_end(engine), COMMSCHED_OK);
    return message;
  });
  EXPECT_EQ(error, "");
}

// A bucket is reduced as soon as its last backward is over, wherever that is.
TEST(PassListTest, ReductionsFollowTheLastBackwardOfTheList) {
  ToyRun run = ListRun(1, 2, /*accumulate_bytes=*/0);
  run.plan.coalesce_bytes = 0;
  run.passes = ModuleByModule();
  const Planned planned = PlanOf(run);
  ASSERT_EQ(planned.error, "");
  std::string due;
  for (const auto& launch : planned.plan.at("launches")) {
    if (launch.dump().find("reduce_scatter.3") != std::string::npos) {
      due = launch.dump();
    }
  }
  EXPECT_THAT(due, HasSubstr("backward[3].block1"));
}

TEST(PassListTest, AllocatesNothingOnceWarm) {
  ToyRun run = ListRun(3, 2, /*accumulate_bytes=*/1);
  run.passes = OneForwardOneBackward();
  const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

TEST(PassListTest, ModulesOfAListCanBeLeftOut) {
  for (uint32_t stage : {1u, 3u}) {
    ToyRun run = ListRun(stage, 3, /*accumulate_bytes=*/1);
    run.engine.allow_skipped_modules = 1;
    run.skips = [](const ToyPass& pass) {
      return (pass.micro_batch + pass.module +
              static_cast<uint32_t>(pass.rank)) %
                 3 ==
             0;
    };
    const ToyResult expected = RunToy(run);
    ASSERT_EQ(expected.error, "");
    for (const PassSchedule& schedule : kSchedules) {
      SCOPED_TRACE(schedule.name);
      run.passes = schedule.list();
      const ToyResult result = RunToy(run);
      ASSERT_EQ(result.error, "");
      EXPECT_TRUE(SameBits(result.weights[0], expected.weights[0]));
    }
  }
}

// ---- Modules that are not trained -------------------------------------------

ToyRun FrozenEmbedding(uint32_t stage, int32_t ranks) {
  constexpr uint32_t kEmbedding = 1;
  ToyRun run = ListRun(stage, ranks, /*accumulate_bytes=*/1);
  run.describe = [](uint32_t p, commsched_parameter_desc_t* desc) {
    if (p == kEmbedding) desc->frozen = 1;
  };
  run.absent = [](const ToyPass&, uint32_t p) { return p == kEmbedding; };
  return run;
}

TEST(PassListTest, AModuleOfFrozenParametersNeedsNoBackward) {
  for (int32_t ranks = 1; ranks <= 4; ++ranks) {
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " +
                   std::to_string(stage));
      ToyRun run = FrozenEmbedding(stage, ranks);
      const ToyResult expected = RunToy(run);
      ASSERT_EQ(expected.error, "");
      for (commsched_pass_t pass : AsByDefault()) {
        if (pass.module == kEmbed) {
          if (pass.kind == COMMSCHED_BACKWARD) continue;
          pass.kind = COMMSCHED_NO_GRAD;
        }
        run.passes.push_back(pass);
      }
      const ToyResult result = RunToy(run);
      ASSERT_EQ(result.error, "");
      for (const std::vector<float>& weights : result.weights) {
        EXPECT_TRUE(SameBits(weights, expected.weights[0]));
      }
    }
  }
}

// No rank sends what does not change, so that it is there at any time.
TEST(PassListTest, AnUnplannedForwardOfFrozenParametersWaitsForNothing) {
  for (uint32_t stage : {1u, 2u}) {
    const std::string error =
        OnRanks(FrozenEmbedding(stage, 2), [](ToyRank& toy, int32_t) {
          RETURN_MESSAGE_IF_ERROR(toy.Build());
          RETURN_MESSAGE_IF_ERROR(toy.Step(0));
          commsched_engine_t* engine = toy.engine();
          RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine, nullptr));
          EXPECT_ENGINE_ERROR(PassBegin(engine, COMMSCHED_NO_GRAD, kBlock0, 0),
                              COMMSCHED_FAILED_PRECONDITION,
                              HasSubstr("may still be on their way"));
          EXPECT_EQ(PassBegin(engine, COMMSCHED_NO_GRAD, kEmbed, 0),
                    COMMSCHED_OK);
          EXPECT_EQ(PassEnd(engine, COMMSCHED_NO_GRAD, kEmbed, 0),
                    COMMSCHED_OK);
          return LeaveStep(engine);
        });
    EXPECT_EQ(error, "");
  }
}

// ---- Errors -----------------------------------------------------------------

// Runs `body` with a model of the toy's modules, which is not planned yet.
template <typename Body>
void BeforePlan(const ToyRun& run, const Body& body) {
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    body(toy, toy.model());
    return std::string();
  });
  EXPECT_EQ(error, "");
}

TEST(PassListErrorTest, WhatIsNoListIsRefusedByName) {
  BeforePlan(ListRun(1, 1, 0), [](ToyRank& toy, commsched_model_t* model) {
    PassList list = AsByDefault();
    list[4].kind = COMMSCHED_BACKWARD_WEIGHT;
    EXPECT_ENGINE_ERROR(
        commsched_model_set_passes(model, list.data(), list.size()),
        COMMSCHED_INVALID_ARGUMENT,
        HasSubstr("pass 4 is BACKWARD_WEIGHT of module 3 'head', micro-batch "
                  "0, which no BACKWARD_INPUT comes before"));
    list[4].kind = 6;
    EXPECT_ENGINE_ERROR(
        commsched_model_set_passes(model, list.data(), list.size()),
        COMMSCHED_INVALID_ARGUMENT, HasSubstr("pass 4 is of kind 6"));
    EXPECT_ENGINE_ERROR(commsched_model_set_passes(model, nullptr, 1),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("passes"));
    list = AsByDefault();
    list.resize(8);  // A single micro-batch.
    EXPECT_EQ(commsched_model_set_passes(model, list.data(), list.size()),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(toy.TryPlan(), COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("no forward of module 0 'embed' in "
                                  "micro-batch 1; micro_batches is 4"));
    list = AsByDefault();
    for (commsched_pass_t pass :
         {commsched_pass_t{0, 0, 4, 0}, commsched_pass_t{2, 0, 4, 0}}) {
      list.push_back(pass);
    }
    EXPECT_EQ(commsched_model_set_passes(model, list.data(), list.size()),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(toy.TryPlan(), COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("pass 32 is FORWARD of module 0 'embed', "
                                  "micro-batch 4; micro_batches is 4"));
    EXPECT_EQ(commsched_model_set_passes(model, nullptr, 0), COMMSCHED_OK);
    EXPECT_EQ(toy.TryPlan(), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        commsched_model_set_passes(model, list.data(), list.size()),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("a step plan is made"));
  });
}

TEST(PassListErrorTest, AModuleWithParametersNeedsABackward) {
  BeforePlan(ListRun(1, 1, 0), [](ToyRank& toy, commsched_model_t* model) {
    PassList list;
    for (commsched_pass_t pass : AsByDefault()) {
      if (pass.module == kEmbed) {
        if (pass.kind == COMMSCHED_BACKWARD) continue;
        pass.kind = COMMSCHED_NO_GRAD;
      }
      list.push_back(pass);
    }
    EXPECT_EQ(commsched_model_set_passes(model, list.data(), list.size()),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        toy.TryPlan(), COMMSCHED_INVALID_ARGUMENT,
        HasSubstr("module 0 'embed' has parameter 'embed.weight', "
                  "which is trained, and no backward among "
                  "the passes"));
  });
}

TEST(PassListErrorTest, AnotherWayToSayTheOrderDoesNotGoWithIt) {
  const PassList list = AsByDefault();
  ToyRun run = ListRun(1, 1, 0);
  run.order = [](uint32_t) { return std::vector<uint32_t>{0, 1, 2, 3}; };
  BeforePlan(run, [&](ToyRank&, commsched_model_t* model) {
    EXPECT_EQ(commsched_model_set_passes(model, list.data(), list.size()),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(commsched_model_recompute(model, kBlock0, kBlock1),
                        COMMSCHED_FAILED_PRECONDITION, HasSubstr("RECOMPUTE"));
    EXPECT_EQ(commsched_model_set_passes(model, nullptr, 0), COMMSCHED_OK);
    EXPECT_EQ(commsched_model_recompute(model, kBlock0, kBlock1), COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        commsched_model_set_passes(model, list.data(), list.size()),
        COMMSCHED_FAILED_PRECONDITION, HasSubstr("RECOMPUTE"));
  });
  BeforePlan(run, [&](ToyRank& toy, commsched_model_t* model) {
    EXPECT_EQ(commsched_model_set_passes(model, list.data(), list.size()),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(toy.Create(), COMMSCHED_FAILED_PRECONDITION,
                        HasSubstr("passes of a step were set"));
  });
}

TEST(PassListErrorTest, ADifferenceBetweenRanksIsNamed) {
  const ToyRun run = ListRun(1, 2, 0);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    PassList list = AsByDefault();
    if (rank == 1) list = GPipe();
    EXPECT_EQ(commsched_model_set_passes(toy.model(), list.data(), list.size()),
              COMMSCHED_OK);
    EXPECT_ENGINE_ERROR(
        toy.Create(), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("pass 4 is BACKWARD of module 3 'head', micro-batch 0 on "
                  "rank 0 and FORWARD of module 0 'embed', micro-batch 1 on "
                  "rank 1"));
    return std::string();
  });
  EXPECT_EQ(error, "");
}

TEST(PassListErrorTest, APassOutOfItsOrderIsRefused) {
  ToyRun run = ListRun(1, 1, 0);
  run.passes = ZeroBubble();
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    commsched_engine_t* engine = toy.engine();
    EXPECT_EQ(commsched_engine_step_begin(engine, nullptr), COMMSCHED_OK);
    for (uint32_t m = 0; m < kListModules; ++m) {
      EXPECT_EQ(ForwardBegin(engine, m, 0), COMMSCHED_OK);
      EXPECT_EQ(ForwardEnd(engine, m, 0), COMMSCHED_OK);
    }
    EXPECT_ENGINE_ERROR(
        BackwardBegin(engine, kHead, 0), COMMSCHED_FAILED_PRECONDITION,
        HasSubstr("pass_begin of BACKWARD of module 3 'head', micro-batch 0 "
                  "was called; expected pass_begin of BACKWARD_INPUT of module "
                  "3 'head', micro-batch 0"));
    commsched_pass_t unknown = {9, kHead, 0, 0};
    EXPECT_ENGINE_ERROR(commsched_engine_pass_begin(engine, &unknown),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("pass.kind is 9"));
    EXPECT_ENGINE_ERROR(commsched_engine_pass_end(engine, nullptr),
                        COMMSCHED_INVALID_ARGUMENT, HasSubstr("pass"));
    return message;
  });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

// The end of a step in three calls, and what update is given.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

ToyRun ToyOfOne() {
  ToyRun run;
  run.ranks = 1;
  return run;
}

// (Ranks, ZeRO stage, deterministic)
class EndOfStepTest
    : public ::testing::TestWithParam<std::tuple<int32_t, uint32_t, bool>> {
 protected:
  static ToyRun Run() {
    ToyRun run;
    run.ranks = std::get<0>(GetParam());
    run.options.zero_stage = std::get<1>(GetParam());
    run.plan.deterministic = std::get<2>(GetParam()) ? 1 : 0;
    return run;
  }
  static void ExpectTheSame(const ToyResult& one, const ToyResult& other) {
    ASSERT_EQ(one.error, "");
    ASSERT_EQ(other.error, "");
    if (std::get<2>(GetParam())) {
      EXPECT_TRUE(SameBits(one.weights[0], other.weights[0]));
      return;
    }
    for (size_t i = 0; i < one.weights[0].size(); ++i) {
      ASSERT_NEAR(one.weights[0][i], other.weights[0][i], 1e-5) << i;
    }
  }
};

TEST_P(EndOfStepTest, ReadingTheNormChangesNoWeight) {
  ToyRun run = Run();
  run.update = [](commsched_engine_t* engine) -> std::string {
    double before = 0, again = 0, after = 0;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_reduce(engine));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine, &before));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine, &again));
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine, kToyLearningRate));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine, &after));
    EXPECT_GT(before, 0);
    EXPECT_EQ(again, before);
    EXPECT_EQ(after, before);
    return "";
  };
  ExpectTheSame(RunToy(run), RunToy(Run()));
}

TEST_P(EndOfStepTest, AClipNormOfTheStepIsThatOfTheDescription) {
  ToyRun run = Run();
  const ToyResult described = RunToy(run);
  run.engine.clip_norm = 0;
  run.options.norm = 1;
  run.update = [](commsched_engine_t* engine) {
    commsched_engine_update_args_t args = UpdateArgs(kToyLearningRate);
    args.clip_norm = 1;
    return Message(commsched_engine_update(engine, &args));
  };
  ExpectTheSame(RunToy(run), described);
}

TEST_P(EndOfStepTest, BetasOfAnOptionSetAreThoseOfATable) {
  ToyRun run = Run();
  run.engine.weight_decay = 0;
  run.optimizer = commsched_adamw(0.8f, 0.7f, 1e-8f);
  const ToyResult of_table = RunToy(run);
  run.optimizer = commsched_adamw(0.9f, 0.95f, 1e-8f);
  run.options.option_sets = 1;
  run.update = [](commsched_engine_t* engine) {
    commsched_option_values_t set = commsched_option_values_init();
    set.lr_scale = 2;
    set.beta1 = 0.8f;
    set.beta2 = 0.7f;
    commsched_engine_update_args_t args = UpdateArgs(kToyLearningRate / 2);
    args.sets = &set;
    args.num_sets = 1;
    return Message(commsched_engine_update(engine, &args));
  };
  ExpectTheSame(RunToy(run), of_table);
}

// What the description says of two dimensions and of one, said of two sets.
TEST_P(EndOfStepTest, EachOptionSetHasItsOwnDecay) {
  ToyRun run = Run();
  const ToyResult described = RunToy(run);
  run.options.option_sets = 2;
  run.describe = [](uint32_t, commsched_parameter_desc_t* desc) {
    desc->option_set = desc->num_dims >= 2 ? 1 : 0;
  };
  const float decay = run.engine.weight_decay;
  run.engine.weight_decay = 0.7f;
  run.update = [decay](commsched_engine_t* engine) {
    commsched_option_values_t sets[2] = {commsched_option_values_init(),
                                         commsched_option_values_init()};
    sets[1].decay = decay;
    commsched_engine_update_args_t args = UpdateArgs(kToyLearningRate);
    args.sets = sets;
    args.num_sets = 2;
    return Message(commsched_engine_update(engine, &args));
  };
  ExpectTheSame(RunToy(run), described);
}

INSTANTIATE_TEST_SUITE_P(RanksStagesAndModes, EndOfStepTest,
                         Combine(Values(1, 2, 4), Values(0u, 1u, 2u, 3u),
                                 Values(true, false)));

TEST(EndOfStepCallsTest, CallsComeInOneOrder) {
  EXPECT_EQ(OnRanks(ToyOfOne(),
                    [](ToyRank& toy, int32_t) -> std::string {
                      RETURN_MESSAGE_IF_ERROR(toy.Build());
                      commsched_engine_t* const engine = toy.engine();
                      double norm = 0;
                      RETURN_MESSAGE_IF_ERROR(
                          commsched_engine_step_begin(engine, nullptr));
                      EXPECT_ENGINE_ERROR(commsched_engine_reduce(engine),
                                          COMMSCHED_FAILED_PRECONDITION,
                                          HasSubstr("reduce was called"));
                      EXPECT_ENGINE_ERROR(commsched_engine_norm(engine, &norm),
                                          COMMSCHED_FAILED_PRECONDITION,
                                          HasSubstr("norm was called"));
                      return "";
                    }),
            "");
  EXPECT_EQ(OnRanks(ToyOfOne(),
                    [](ToyRank& toy, int32_t) -> std::string {
                      RETURN_MESSAGE_IF_ERROR(toy.Build());
                      commsched_engine_t* const engine = toy.engine();
                      RETURN_MESSAGE_IF_ERROR(toy.ForwardBackward(0));
                      RETURN_MESSAGE_IF_ERROR(commsched_engine_reduce(engine));
                      EXPECT_ENGINE_ERROR(commsched_engine_reduce(engine),
                                          COMMSCHED_FAILED_PRECONDITION,
                                          HasSubstr("expected update"));
                      RETURN_MESSAGE_IF_ERROR(UpdateWith(engine, 0.1f));
                      EXPECT_ENGINE_ERROR(UpdateWith(engine, 0.1f),
                                          COMMSCHED_FAILED_PRECONDITION,
                                          HasSubstr("expected step_end"));
                      return Message(commsched_engine_step_end(engine));
                    }),
            "");
}

// Each way in which values travel: with the norm, in a sum of it, alone.
TEST(EndOfStepCallsTest, ADecayThatDiffersIsNamedOnEveryRank) {
  for (const uint32_t stage : {0u, 2u}) {
    for (const uint32_t deterministic : {0u, 1u}) {
      ToyRun run;
      run.ranks = 3;
      run.options.zero_stage = stage;
      run.plan.deterministic = deterministic;
      run.options.option_sets = 2;
      std::vector<std::string> messages(3);
      const std::string first =
          OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
            std::string& message = messages[static_cast<size_t>(rank)];
            message = toy.Build();
            for (uint32_t step = 0; message.empty() && step < 3; ++step) {
              message = toy.ForwardBackward(step);
              if (!message.empty()) break;
              commsched_option_values_t sets[2] = {
                  commsched_option_values_init(),
                  commsched_option_values_init()};
              sets[1].decay = rank == 2 ? 0.25f : 0.5f;
              commsched_engine_update_args_t args = UpdateArgs(0.1f);
              args.sets = sets;
              args.num_sets = 2;
              message = Message(commsched_engine_update(toy.engine(), &args));
              if (!message.empty()) break;
              message = Message(commsched_engine_step_end(toy.engine()));
            }
            return message;
          });
      for (const std::string& message : messages) {
        EXPECT_THAT(message, HasSubstr("decay of option set 1 of step 1 is 0.5 "
                                       "on rank 0 of the group and 0.25 on "
                                       "rank 2"))
            << stage << deterministic;
      }
    }
  }
}

}  // namespace
}  // namespace commsched::engine

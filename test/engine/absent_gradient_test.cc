// Gradients that a step does not have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/pass_calls.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTiedEmbed = 1;     // Of the first and the last module.
constexpr uint32_t kBlock1Weight = 4;  // Alone in its bucket.

ToyRun AbsentRun(int32_t ranks, uint32_t stage, uint64_t accumulate_bytes) {
  ToyRun run;
  run.ranks = ranks;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = 4096;
  run.options.micro_batches = 2;
  run.options.accumulate_bytes = accumulate_bytes;
  run.options.absent_gradients = 1;
  return run;
}

// Calls body(run) on 2, 3 and 4 ranks in every stage, with gradients that
// accumulate whole and with those that are reduced in each micro-batch, in fp32
// and in 16 bits, with a norm and without.
template <typename Body>
void InEachMode(const Body& body) {
  for (uint32_t i = 0; i < 64; ++i) {
    const int32_t ranks = 2 + static_cast<int32_t>(i % 3);
    ToyRun run = AbsentRun(ranks, i % 4, i / 4 % 2);
    run.engine.clip_norm = i / 8 % 2 == 0 ? 0 : 1.0f;
    if (i / 16 % 2 == 1) {
      run.options.parameter_dtype = COMMSCHED_BF16;
      run.options.reduce_dtype = COMMSCHED_BF16;
    }
    if (i / 32 == 1) run.optimizer = commsched_sgd(0.9f, 0);
    SCOPED_TRACE("mode " + std::to_string(i));
    body(run);
    if (::testing::Test::HasFailure()) return;
  }
}

ToyResult ResultOf(const ToyRun& run) {
  ToyResult result = RunToy(run);
  EXPECT_EQ(result.error, "");
  return result;
}

// Without saying so: what nothing is added to are zeros.
void ExpectWeightsOfZeros(const ToyRun& run) {
  ToyRun zeros = run;
  zeros.options.absent_gradients = 0;
  const ToyResult expected = ResultOf(zeros);
  for (const std::vector<float>& weights : ResultOf(run).weights) {
    EXPECT_TRUE(SameBits(weights, expected.weights[0]));
  }
}

// Of `weights`, those of `parameter`.
std::vector<float> PartOf(const std::vector<float>& weights,
                          uint32_t parameter) {
  uint64_t begin = 0;
  for (uint32_t p = 0; p < parameter; ++p) begin += ToyParameters()[p].count();
  const auto first = weights.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(
                             ToyParameters()[parameter].count())};
}

ToyResult InitialOf(ToyRun run) {
  run.steps = 0;
  run.engine.clip_norm = 0;
  return ResultOf(run);
}

// All weights of `run` are those of zeros, but `parameter` has those that it
// began with.
void ExpectLeftAsItIs(const ToyRun& run, uint32_t parameter) {
  ToyRun zeros = run;
  zeros.options.absent_gradients = 0;
  const ToyResult expected = ResultOf(zeros);
  const ToyResult initial = InitialOf(zeros);
  for (const std::vector<float>& weights : ResultOf(run).weights) {
    for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
      SCOPED_TRACE(ToyParameters()[p].name);
      EXPECT_TRUE(SameBits(
          PartOf(weights, p),
          PartOf((p == parameter ? initial : expected).weights[0], p)));
    }
  }
  // The decay would have changed it.
  EXPECT_FALSE(SameBits(PartOf(expected.weights[0], parameter),
                        PartOf(initial.weights[0], parameter)));
}

TEST(AbsentGradientTest, OfSomeRanksCountsAsZeros) {
  InEachMode([](ToyRun run) {
    run.absent = [](const ToyPass& pass, uint32_t parameter) {
      return (static_cast<uint32_t>(pass.rank) + pass.step + parameter) % 2 ==
             0;
    };
    ExpectWeightsOfZeros(run);
  });
}

TEST(AbsentGradientTest, OfSomeMicroBatchesCountsAsZeros) {
  InEachMode([](ToyRun run) {
    run.absent = [](const ToyPass& pass, uint32_t parameter) {
      return pass.micro_batch == parameter % 2;
    };
    ExpectWeightsOfZeros(run);
  });
}

// The last module has none, and the first does.
TEST(AbsentGradientTest, OfOneOfTwoModulesCountsAsZeros) {
  InEachMode([](ToyRun run) {
    run.absent = [](const ToyPass& pass, uint32_t parameter) {
      return pass.module == kHead && parameter == kTiedEmbed;
    };
    ExpectWeightsOfZeros(run);
  });
}

TEST(AbsentGradientTest, OfAllRanksLeavesTheParameterAsItIs) {
  InEachMode([](ToyRun run) {
    run.absent = [](const ToyPass&, uint32_t parameter) {
      return parameter == kBlock1Weight;
    };
    ExpectLeftAsItIs(run, kBlock1Weight);
    run.absent = [](const ToyPass&, uint32_t parameter) {
      return parameter == kTiedEmbed;
    };
    ExpectLeftAsItIs(run, kTiedEmbed);
  });
}

// What a rank leaves out gives no gradient.
TEST(AbsentGradientTest, OfModulesThatAllLeaveOutLeavesThemAsTheyAre) {
  InEachMode([](ToyRun run) {
    run.engine.allow_skipped_modules = 1;
    run.skips = [](const ToyPass& pass) { return pass.module == kBlock1; };
    ToyRun zeros = run;
    zeros.options.absent_gradients = 0;
    const ToyResult decayed = ResultOf(zeros);
    const ToyResult initial = InitialOf(zeros);
    for (const std::vector<float>& weights : ResultOf(run).weights) {
      EXPECT_TRUE(SameBits(PartOf(weights, kBlock1Weight),
                           PartOf(initial.weights[0], kBlock1Weight)));
      EXPECT_FALSE(SameBits(PartOf(weights, kBlock1Weight),
                            PartOf(decayed.weights[0], kBlock1Weight)));
      EXPECT_TRUE(SameBits(PartOf(weights, 2), PartOf(decayed.weights[0], 2)));
    }
  });
}

// The state of the step in which it was absent is not there.
TEST(AbsentGradientTest, LeavesTheStateOfTheOptimizerAsItIs) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (const bool offloaded : {false, true}) {
      for (const uint32_t dtype : {COMMSCHED_F32, COMMSCHED_BF16}) {
        SCOPED_TRACE("stage " + std::to_string(stage));
        ToyRun run = AbsentRun(3, stage, 0);
        // What one parameter does is nothing to another one, nor is how many
        // steps were before.
        run.engine.clip_norm = 0;
        run.optimizer = commsched_sgd(0.9f, 0);
        run.options.parameter_dtype = dtype;
        run.options.reduce_dtype = dtype;
        if (offloaded) run.pools = std::make_shared<TestPools>();
        const auto weights_of = [&](const std::vector<uint32_t>& steps) {
          std::vector<float> weights;
          const std::string error =
              OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
                RETURN_MESSAGE_IF_ERROR(toy.Build());
                for (uint32_t step : steps) {
                  RETURN_MESSAGE_IF_ERROR(toy.Step(step));
                }
                std::vector<float> mine;
                RETURN_MESSAGE_IF_ERROR(toy.Weights(&mine));
                if (rank == 0) weights = std::move(mine);
                return "";
              });
          EXPECT_EQ(error, "");
          return weights;
        };
        run.absent = [](const ToyPass& pass, uint32_t parameter) {
          return pass.step == 7 && parameter == kBlock1Weight;
        };
        EXPECT_TRUE(SameBits(PartOf(weights_of({0, 7, 1}), kBlock1Weight),
                             PartOf(weights_of({0, 1}), kBlock1Weight)));
        if (HasFailure()) return;
      }
    }
  }
}

// Corrections of its own do not make an option set forget what is absent, and
// an optimizer of whole tensors is told of it, too.
TEST(AbsentGradientTest, HoldsInOptionSetsAndForWholeTensors) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (const bool whole : {false, true}) {
      SCOPED_TRACE("stage " + std::to_string(stage));
      ToyRun run = AbsentRun(2, stage, 0);
      if (whole) {
        run.optimizer.element_wise = 0;
        run.optimizer.whole_tensors = 1;
      }
      run.options.option_sets = 2;
      run.describe = [](uint32_t parameter, commsched_parameter_desc_t* desc) {
        desc->option_set = parameter % 2;
      };
      run.update = [](commsched_engine_t* engine) {
        commsched_option_values_t sets[2] = {commsched_option_values_init(),
                                             commsched_option_values_init()};
        sets[0].decay = 0.1f;
        sets[0].beta1 = 0.8f;
        sets[1].decay = 0.2f;
        commsched_engine_update_args_t args = UpdateArgs(kToyLearningRate);
        args.num_sets = 2;
        args.sets = sets;
        return Message(commsched_engine_update(engine, &args));
      };
      for (const uint32_t absent : {kTiedEmbed, kBlock1Weight}) {
        run.absent = [absent](const ToyPass&, uint32_t parameter) {
          return parameter == absent;
        };
        ExpectLeftAsItIs(run, absent);
      }
      if (HasFailure()) return;
    }
  }
}

TEST(AbsentGradientTest, IsReadyToo) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = AbsentRun(3, stage, stage % 2);
    run.options.gradient_ready = 1;
    run.absent = [](const ToyPass&, uint32_t parameter) {
      return parameter == kBlock1Weight;
    };
    for (uint32_t part : {1, 2}) {
      run.ready = [part](const ToyPass& pass, uint32_t parameter) {
        return (pass.step + parameter) % part == 0;
      };
      ExpectLeftAsItIs(run, kBlock1Weight);
    }
    if (HasFailure()) return;
  }
}

// Nothing was given before the backward in which the ranks cancel, each for
// itself.
TEST(AbsentGradientTest, IsWhatACancelledRankHas) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = AbsentRun(3, stage, 0);
    run.steps = 1;
    run.cancels = [](const ToyBegin& next) {
      const bool here = next.backward && next.pass.module == kHead;
      return here ? ToyCancel::kWithin : ToyCancel::kNot;
    };
    const ToyResult initial = InitialOf(run);
    for (const std::vector<float>& weights : ResultOf(run).weights) {
      EXPECT_TRUE(SameBits(weights, initial.weights[0]));
    }
  }
}

TEST(AbsentGradientTest, AllocatesNothingOnceWarm) {
  ToyRun run = AbsentRun(3, 2, 0);
  run.absent = [](const ToyPass& pass, uint32_t parameter) {
    return (pass.step + parameter) % 2 == 0;
  };
  const auto step = [](ToyRank& toy, uint32_t t) { return toy.Step(t); };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

TEST(AbsentGradientTest, CostsNothingUnlessItMayHappen) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (const float clip_norm : {0.0f, 1.0f}) {
      ToyRun run = AbsentRun(2, stage, 0);
      run.engine.clip_norm = clip_norm;
      const auto has_flags = [](const ToyRun& of) {
        const Planned planned = PlanOf(of);
        EXPECT_EQ(planned.error, "");
        return planned.plan.dump().find("flags") != std::string::npos;
      };
      EXPECT_TRUE(has_flags(run));
      run.options.absent_gradients = 0;
      EXPECT_FALSE(has_flags(run));
    }
  }
}

TEST(AbsentGradientTest, IsRefusedWhereItIsNotSaid) {
  for (const uint32_t option : {0u, 1u}) {
    ToyRun run = AbsentRun(2, 2, 0);
    run.options.micro_batches = 1;
    run.options.absent_gradients = option;
    run.options.gradient_ready = 1;
    const std::string error =
        OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
          RETURN_MESSAGE_IF_ERROR(toy.Build());
          commsched_engine_t* engine = toy.engine();
          const auto absent = [&](uint32_t parameter) {
            return commsched_engine_gradient_absent(engine, parameter);
          };
          RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine, nullptr));
          for (uint32_t m = 0; m < 4; ++m) {
            RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
            if (option == 1) {
              EXPECT_ENGINE_ERROR(absent(kTiedEmbed),
                                  COMMSCHED_FAILED_PRECONDITION,
                                  HasSubstr("which does not add to it"));
            }
            RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
          }
          RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine, kHead, 0));
          EXPECT_ENGINE_ERROR(absent(99), COMMSCHED_NOT_FOUND, HasSubstr("99"));
          if (option == 0) {
            EXPECT_ENGINE_ERROR(
                absent(kTiedEmbed), COMMSCHED_FAILED_PRECONDITION,
                HasSubstr("gradient_absent of 'embed.weight', but "
                          "absent_gradients is 0"));
          } else {
            EXPECT_ENGINE_ERROR(absent(kBlock1Weight),
                                COMMSCHED_FAILED_PRECONDITION,
                                HasSubstr("which does not add to it"));
            EXPECT_EQ(absent(kTiedEmbed), COMMSCHED_OK);
            EXPECT_ENGINE_ERROR(absent(kTiedEmbed),
                                COMMSCHED_FAILED_PRECONDITION,
                                HasSubstr("which was absent in this pass"));
            EXPECT_ENGINE_ERROR(
                commsched_engine_gradient_ready(engine, kTiedEmbed),
                COMMSCHED_FAILED_PRECONDITION,
                HasSubstr("which was absent in this pass"));
          }
          RETURN_MESSAGE_IF_ERROR(
              commsched_engine_step_cancel(engine, COMMSCHED_CANCEL_LOCAL));
          RETURN_MESSAGE_IF_ERROR(UpdateWith(engine, 0.1f));
          RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine));
          EXPECT_ENGINE_ERROR(absent(kTiedEmbed), COMMSCHED_FAILED_PRECONDITION,
                              HasSubstr(option == 0 ? "absent_gradients is 0"
                                                    : "expected step_begin"));
          return "";
        });
    EXPECT_EQ(error, "");
  }
}

}  // namespace
}  // namespace commsched::engine

// Evaluations of another length on each rank, and forwards without a gradient
// between the passes of a step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
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

ToyRun UnevenRun(int32_t ranks, uint32_t stage) {
  ToyRun run;
  run.ranks = ranks;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = 4096;
  run.options.uneven_evaluations = 1;
  return run;
}

// In a pass of `module`: whether its values are those of `expected`.
std::string CheckToyValues(commsched_engine_t* engine, uint32_t module,
                           const std::vector<float>& expected) {
  uint64_t begin = 0;
  for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
    const uint64_t count = ToyParameters()[p].count();
    for (uint32_t used : ToyModules()[module].used) {
      if (used != p) continue;
      const void* values = nullptr;
      void* gradient = nullptr;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_address(engine, p, &values, &gradient));
      if (values == nullptr) return "a parameter in use has no address";
      const auto* const floats = static_cast<const float*>(values);
      const std::vector<float> mine(floats, floats + count);
      const auto first = expected.begin() + static_cast<std::ptrdiff_t>(begin);
      if (!SameBits(mine, {first, first + static_cast<std::ptrdiff_t>(count)}))
        return "other values";
    }
    begin += count;
  }
  return "";
}

std::string EvaluateOften(commsched_engine_t* engine, uint32_t forwards,
                          const std::vector<float>& expected) {
  RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine));
  for (uint32_t i = 0; i < forwards; ++i) {
    for (uint32_t m = 0; m < 4; ++m) {
      RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
      RETURN_MESSAGE_IF_ERROR(CheckToyValues(engine, m, expected));
      RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
    }
  }
  return Message(commsched_engine_evaluation_end(engine));
}

// Steps go on afterwards as if there had been none.
TEST(UnevenEvaluationTest, HasAnotherNumberOfForwardsOnEachRank) {
  for (int32_t ranks = 2; ranks <= 4; ++ranks) {
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " +
                   std::to_string(stage));
      ToyRun run = UnevenRun(ranks, stage);
      run.options.uneven_evaluations = 0;
      run.steps = 1;
      const ToyResult first = RunToy(run);
      run.steps = 2;
      const ToyResult second = RunToy(run);
      run.options.uneven_evaluations = 1;
      const std::string error =
          OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
            RETURN_MESSAGE_IF_ERROR(toy.Build());
            const uint32_t forwards[] = {0, 1, 5, 2};
            for (uint32_t step = 0; step < 2; ++step) {
              RETURN_MESSAGE_IF_ERROR(toy.Step(step));
              const std::vector<float>& expected =
                  (step == 0 ? first : second).weights[0];
              for (uint32_t turn = 0; turn < 4; ++turn) {
                RETURN_MESSAGE_IF_ERROR(EvaluateOften(
                    toy.engine(),
                    forwards[(turn + static_cast<uint32_t>(rank)) % 4],
                    expected));
              }
              RETURN_MESSAGE_IF_ERROR(EvaluateOften(toy.engine(), 0, expected));
              RETURN_MESSAGE_IF_ERROR(EvaluateOften(toy.engine(), 2, expected));
            }
            return "";
          });
      EXPECT_EQ(error, "");
      if (HasFailure()) return;
    }
  }
}

// The first module that comes again begins the next forward.
TEST(UnevenEvaluationTest, LeavesModulesOutInEachForward) {
  for (uint32_t stage : {1u, 3u}) {
    ToyRun run = UnevenRun(3, stage);
    run.engine.allow_skipped_modules = 1;
    const std::string error =
        OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
          RETURN_MESSAGE_IF_ERROR(toy.Build());
          commsched_engine_t* engine = toy.engine();
          RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine));
          for (int32_t i = 0; i < 2 * rank; ++i) {
            for (uint32_t m : {1u, 2u}) {
              RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
              RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
            }
          }
          RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_end(engine));
          return toy.Step(0);
        });
    EXPECT_EQ(error, "");
  }
}

TEST(UnevenEvaluationTest, IsOneForwardUnlessTheOptionsSaySo) {
  for (const uint32_t option : {0u, 1u}) {
    ToyRun run = UnevenRun(2, 3);
    run.options.uneven_evaluations = option;
    const std::string error =
        OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
          RETURN_MESSAGE_IF_ERROR(toy.Build());
          commsched_engine_t* engine = toy.engine();
          RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine));
          RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, 0, 0));
          RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, 0, 0));
          // Within a forward neither the end nor another one.
          for (const commsched_status_t code :
               {commsched_engine_evaluation_end(engine),
                ForwardBegin(engine, 0, 0)}) {
            EXPECT_EQ(code, COMMSCHED_FAILED_PRECONDITION);
            EXPECT_THAT(LastError(), HasSubstr("expected pass_begin of FORWARD "
                                               "of module 1 'block0'"));
          }
          for (uint32_t m = 1; m < 4; ++m) {
            RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
            RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
          }
          EXPECT_ENGINE_ERROR(ForwardBegin(engine, 1, 0),
                              COMMSCHED_FAILED_PRECONDITION,
                              HasSubstr("expected evaluation_end"));
          if (option == 0) {
            EXPECT_ENGINE_ERROR(ForwardBegin(engine, 0, 0),
                                COMMSCHED_FAILED_PRECONDITION,
                                HasSubstr("expected evaluation_end"));
          }
          RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_end(engine));
          if (option == 1) return EvaluateOften(engine, 0, {});
          RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine));
          EXPECT_ENGINE_ERROR(commsched_engine_evaluation_end(engine),
                              COMMSCHED_FAILED_PRECONDITION,
                              HasSubstr("expected pass_begin"));
          for (uint32_t m = 0; m < 4; ++m) {
            RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
            RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
          }
          return Message(commsched_engine_evaluation_end(engine));
        });
    EXPECT_EQ(error, "");
  }
}

// ---- Forwards between the passes of a step ----------------------------------

std::string ExtraForward(commsched_engine_t* engine, uint32_t module,
                         const std::vector<float>& expected) {
  RETURN_MESSAGE_IF_ERROR(PassBegin(engine, COMMSCHED_NO_GRAD, module, 0));
  RETURN_MESSAGE_IF_ERROR(CheckToyValues(engine, module, expected));
  EXPECT_ENGINE_ERROR(commsched_engine_step_end(engine),
                      COMMSCHED_FAILED_PRECONDITION,
                      HasSubstr("expected pass_end of NO_GRAD of module " +
                                std::to_string(module)));
  void* gradient = nullptr;
  EXPECT_ENGINE_ERROR(commsched_engine_gradient_begin(
                          engine, ToyModules()[module].used[0], &gradient),
                      COMMSCHED_FAILED_PRECONDITION,
                      HasSubstr("expected pass_end of NO_GRAD"));
  return Message(PassEnd(engine, COMMSCHED_NO_GRAD, module, 0));
}

// Those of step 1, in a backward of `module`.
std::string AddToyGradientsOf(commsched_engine_t* engine, int32_t rank,
                              uint32_t module) {
  for (uint32_t p : ToyModules()[module].used) {
    const void* values = nullptr;
    void* gradient = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_address(engine, p, &values, &gradient));
    for (uint64_t i = 0; i < ToyParameters()[p].count(); ++i) {
      static_cast<float*>(gradient)[i] += ToyGradient(
          {rank, 1, 0, module, p}, i, static_cast<const float*>(values)[i]);
    }
  }
  return "";
}

TEST(ExtraForwardTest, ReadsWhatIsWholeAnywhereInAStep) {
  for (int32_t ranks = 2; ranks <= 4; ++ranks) {
    for (uint32_t stage = 0; stage <= 2; ++stage) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " +
                   std::to_string(stage));
      ToyRun run = UnevenRun(ranks, stage);
      run.options.uneven_evaluations = 0;
      run.steps = 1;
      const std::vector<float> after_first = RunToy(run).weights.at(0);
      run.steps = 2;
      const std::vector<float> after_second = RunToy(run).weights.at(0);
      const std::string error =
          OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
            RETURN_MESSAGE_IF_ERROR(toy.Build());
            RETURN_MESSAGE_IF_ERROR(toy.Step(0));
            commsched_engine_t* engine = toy.engine();
            if (rank == 0) {
              RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(engine));
            }
            RETURN_MESSAGE_IF_ERROR(
                commsched_engine_step_begin(engine, nullptr));
            if (rank == 0) {
              RETURN_MESSAGE_IF_ERROR(ExtraForward(engine, 3, after_first));
            } else if (stage > 0) {
              EXPECT_ENGINE_ERROR(
                  PassBegin(engine, COMMSCHED_NO_GRAD, 2, 0),
                  COMMSCHED_FAILED_PRECONDITION,
                  HasSubstr("call commsched_engine_drain() before step_begin"));
            }
            for (uint32_t m = 0; m < 4; ++m) {
              RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine, m, 0));
              RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine, m, 0));
              if (m % 2 == 0) continue;
              RETURN_MESSAGE_IF_ERROR(ExtraForward(engine, m, after_first));
            }
            for (uint32_t m = 4; m-- > 0;) {
              RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine, m, 0));
              RETURN_MESSAGE_IF_ERROR(AddToyGradientsOf(engine, rank, m));
              RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine, m, 0));
              RETURN_MESSAGE_IF_ERROR(ExtraForward(engine, m, after_first));
            }
            RETURN_MESSAGE_IF_ERROR(UpdateWith(engine, kToyLearningRate));
            RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine));
            std::vector<float> weights;
            RETURN_MESSAGE_IF_ERROR(toy.Weights(&weights));
            EXPECT_TRUE(SameBits(weights, after_second));
            return "";
          });
      EXPECT_EQ(error, "");
      if (HasFailure()) return;
    }
  }
}

TEST(ExtraForwardTest, IsRefusedWhereParametersAreGathered) {
  ToyRun run = UnevenRun(2, 3);
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        RETURN_MESSAGE_IF_ERROR(toy.Build());
        commsched_engine_t* engine = toy.engine();
        RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine, nullptr));
        EXPECT_ENGINE_ERROR(
            PassBegin(engine, COMMSCHED_NO_GRAD, 0, 0),
            COMMSCHED_FAILED_PRECONDITION,
            HasSubstr("NO_GRAD of module 0 'embed', micro-batch 0, which is "
                      "not among the passes of a step: in stage 3 nothing "
                      "gathers its parameters"));
        EXPECT_ENGINE_ERROR(PassBegin(engine, COMMSCHED_NO_GRAD, 9, 0),
                            COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("expected pass_begin of FORWARD"));
        return LeaveStep(engine);
      });
  EXPECT_EQ(error, "");
}

// A pass that is still to come in the list has its place.
TEST(ExtraForwardTest, DoesNotStandForOneOfTheList) {
  ToyRun run = UnevenRun(1, 0);
  for (const commsched_pass_kind_t kind :
       {COMMSCHED_NO_GRAD, COMMSCHED_FORWARD}) {
    for (uint32_t m = 0; m < 4; ++m) run.passes.push_back({kind, m, 0, 0});
  }
  for (uint32_t m = 4; m-- > 0;) {
    run.passes.push_back({COMMSCHED_BACKWARD, m, 0, 0});
  }
  const std::string error =
      OnRanks(run, [&](ToyRank& toy, int32_t) -> std::string {
        RETURN_MESSAGE_IF_ERROR(toy.Build());
        commsched_engine_t* engine = toy.engine();
        RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine, nullptr));
        EXPECT_ENGINE_ERROR(PassBegin(engine, COMMSCHED_NO_GRAD, 1, 0),
                            COMMSCHED_FAILED_PRECONDITION,
                            HasSubstr("expected pass_begin of NO_GRAD of "
                                      "module 0"));
        for (uint32_t m : {0u, 0u, 1u}) {
          RETURN_MESSAGE_IF_ERROR(PassBegin(engine, COMMSCHED_NO_GRAD, m, 0));
          RETURN_MESSAGE_IF_ERROR(PassEnd(engine, COMMSCHED_NO_GRAD, m, 0));
        }
        RETURN_MESSAGE_IF_ERROR(PassBegin(engine, COMMSCHED_NO_GRAD, 0, 0));
        return Message(
            commsched_engine_step_cancel(engine, COMMSCHED_CANCEL_LOCAL));
      });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

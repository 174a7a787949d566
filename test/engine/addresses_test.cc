// Where parameters and gradients are in each pass, told in one call; and
// parameters that are gathered several times at one address.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "commsched/engine.h"
#include "commsched/step_plan.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/ranks_in_name.h"
#include "test/engine/toy_rank.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;
using Places = std::vector<commsched_parameter_place_t>;

constexpr uint32_t kMicroBatches = 2;

ToyRun RunInStage(int ranks, uint32_t stage) {
  ToyRun run;
  run.ranks = ranks;
  run.options.zero_stage = stage;
  run.options.micro_batches = kMicroBatches;
  run.options.bucket_bytes = 4096;
  return run;
}

// Goes on with the step plan of `run` in which addresses are fixed, or not.
std::string Replan(ToyRank& toy, const ToyRun& run, bool fixed) {
  commsched_step_plan_options_t options = ToyStepOptions(run);
  options.fixed_addresses = fixed ? 1 : 0;
  RETURN_MESSAGE_IF_ERROR(commsched_engine_replan(
      toy.engine(), PlanModel(toy.model(), run.ranks, options).get()));
  return "";
}

std::string PlacesIn(ToyRank& toy, commsched_pass_kind_t kind, uint32_t module,
                     uint32_t micro_batch, Places* out_places) {
  const commsched_pass_t pass = {kind, module, micro_batch, 0};
  uint64_t count = 0;
  RETURN_MESSAGE_IF_ERROR(
      commsched_engine_addresses(toy.engine(), &pass, nullptr, 0, &count));
  out_places->resize(count);
  RETURN_MESSAGE_IF_ERROR(commsched_engine_addresses(
      toy.engine(), &pass, out_places->data(), count, &count));
  EXPECT_EQ(count, out_places->size());
  return "";
}

// Ranks and stage.
class AddressesTest : public testing::TestWithParam<std::tuple<int, uint32_t>> {
};

TEST_P(AddressesTest, AreThoseThatEachPassFinds) {
  const auto [ranks, stage] = GetParam();
  const ToyRun run = RunInStage(ranks, stage);
  for (const bool fixed : {false, true}) {
    if (fixed && stage != 3) continue;
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
      if (std::string message = toy.Build(); !message.empty()) return message;
      if (std::string message = Replan(toy, run, fixed); !message.empty()) {
        return message;
      }
      const auto num_modules = static_cast<uint32_t>(ToyModules().size());
      uint32_t looks = 0;
      std::string failed;
      const auto look = [&](uint32_t module) {
        Places places;
        failed += PlacesIn(toy, COMMSCHED_BACKWARD, module,
                           looks++ / num_modules % kMicroBatches, &places);
        EXPECT_EQ(places.size(), ToyModules()[module].used.size());
        for (const commsched_parameter_place_t& each : places) {
          EXPECT_EQ(each.values, toy.values()[each.parameter]);
          EXPECT_EQ(each.gradient, toy.gradients()[each.parameter]);
        }
      };
      for (uint32_t step = 0; step < 2; ++step) {
        if (std::string message = toy.Step(step, look); !message.empty()) {
          return message;
        }
      }
      EXPECT_EQ(looks, 2 * kMicroBatches * num_modules);
      return failed;
    });
    EXPECT_EQ(error, "");
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndStages, AddressesTest,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Range(0u, 4u)),
                         RanksInName());

class FixedAddressesTest : public testing::TestWithParam<int> {};

// How many addresses the parameters of the toy have in all passes of a step.
std::string CountAddresses(ToyRank& toy, size_t* out_count) {
  std::vector<std::vector<const void*>> seen;
  for (uint32_t module = 0; module < ToyModules().size(); ++module) {
    for (uint32_t i = 0; i < 2 * kMicroBatches; ++i) {
      Places places;
      if (std::string message =
              PlacesIn(toy, i % 2 == 0 ? COMMSCHED_FORWARD : COMMSCHED_BACKWARD,
                       module, i / 2, &places);
          !message.empty()) {
        return message;
      }
      for (const commsched_parameter_place_t& each : places) {
        EXPECT_EQ(each.gradient == nullptr, i % 2 == 0);
        if (each.parameter >= seen.size()) seen.resize(each.parameter + 1);
        std::vector<const void*>& of = seen[each.parameter];
        if (std::find(of.begin(), of.end(), each.values) == of.end()) {
          of.push_back(each.values);
        }
      }
    }
  }
  *out_count = 0;
  for (const std::vector<const void*>& of : seen) *out_count += of.size();
  return "";
}

TEST_P(FixedAddressesTest, OfAParameterThereIsOneAndWeightsAreTheSame) {
  const ToyRun run = RunInStage(GetParam(), 3);
  const ToyResult expected = RunToy(run);
  ASSERT_EQ(expected.error, "");
  std::vector<std::vector<float>> weights(static_cast<size_t>(run.ranks));
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    if (std::string message = toy.Build(); !message.empty()) return message;
    const size_t num_parameters = ToyParameters().size();
    size_t count = 0;
    if (std::string message = CountAddresses(toy, &count); !message.empty()) {
      return message;
    }
    EXPECT_GT(count, num_parameters);
    if (std::string message = Replan(toy, run, true); !message.empty()) {
      return message;
    }
    if (std::string message = CountAddresses(toy, &count); !message.empty()) {
      return message;
    }
    EXPECT_EQ(count, num_parameters);
    for (uint32_t step = 0; step < run.steps; ++step) {
      if (std::string message = toy.Step(step); !message.empty()) {
        return message;
      }
    }
    return toy.Weights(&weights[static_cast<size_t>(rank)]);
  });
  ASSERT_EQ(error, "");
  for (const std::vector<float>& each : weights) {
    EXPECT_TRUE(SameBits(each, expected.weights[0]));
  }
}

// An order that is recorded later is planned as the last plan was, whatever the
// first said of addresses.
TEST_P(FixedAddressesTest, AreThoseOfTheLastPlanWhenTheOrderIsRecordedAgain) {
  for (const bool fixed : {false, true}) {
    ToyRun run = RunInStage(GetParam(), 3);
    run.options.fixed_addresses = fixed ? 0 : 1;
    run.order = [](uint32_t step) {
      return step == 0 ? std::vector<uint32_t>{kEmbed, kBlock0, kBlock1, kHead}
                       : std::vector<uint32_t>{kHead, kEmbed, kBlock1, kBlock0};
    };
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
      RETURN_MESSAGE_IF_ERROR(toy.Build());
      RETURN_MESSAGE_IF_ERROR(toy.Step(0));
      RETURN_MESSAGE_IF_ERROR(Replan(toy, run, fixed));
      RETURN_MESSAGE_IF_ERROR(toy.Step(1));
      size_t count = 0;
      RETURN_MESSAGE_IF_ERROR(CountAddresses(toy, &count));
      if (fixed) {
        EXPECT_EQ(count, ToyParameters().size());
      } else if (run.ranks == 2) {  // Of more, all buckets happen to stay.
        EXPECT_GT(count, ToyParameters().size());
      }
      return toy.Step(2);
    });
    EXPECT_EQ(error, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FixedAddressesTest, testing::Values(2, 3, 4));

TEST(AddressesErrorsTest, WhileTheOrderIsRecordedThereAreNone) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    ToyRun run = RunInStage(1, stage);
    run.order = [](uint32_t) {
      return std::vector<uint32_t>{kEmbed, kBlock0, kBlock1, kHead};
    };
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
      const auto expect_none = [&] {
        const commsched_pass_t pass = {COMMSCHED_FORWARD, 0, 0, 0};
        commsched_parameter_place_t places[8] = {};
        uint64_t count = 7;
        EXPECT_ENGINE_ERROR(
            commsched_engine_addresses(toy.engine(), &pass, places, 8, &count),
            COMMSCHED_FAILED_PRECONDITION,
            HasSubstr("while the order is recorded"));
        EXPECT_EQ(count, 7u);
      };
      RETURN_MESSAGE_IF_ERROR(toy.Build());
      expect_none();
      RETURN_MESSAGE_IF_ERROR(toy.Step(0));
      RETURN_MESSAGE_IF_ERROR(commsched_engine_record_order(toy.engine()));
      expect_none();
      return std::string();
    });
    EXPECT_EQ(error, "");
  }
}

TEST(AddressesErrorsTest, WhatThePlanDoesNotHaveIsRefusedByName) {
  const ToyRun run = RunInStage(1, 3);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    const auto expect = [&](commsched_pass_t pass, commsched_status_t code,
                            const char* text) {
      uint64_t count = 7;
      EXPECT_ENGINE_ERROR(
          commsched_engine_addresses(toy.engine(), &pass, nullptr, 0, &count),
          code, HasSubstr(text));
      EXPECT_EQ(count, 7u);
    };
    if (std::string message = toy.Build(); !message.empty()) return message;
    expect({COMMSCHED_FORWARD, 0, kMicroBatches, 0}, COMMSCHED_INVALID_ARGUMENT,
           "micro-batch 2, which the step plan");
    expect({COMMSCHED_RECOMPUTE, 0, 0, 0}, COMMSCHED_INVALID_ARGUMENT,
           "RECOMPUTE of module 0");
    expect({COMMSCHED_FORWARD, 1000, 0, 0}, COMMSCHED_INVALID_ARGUMENT,
           "module 1000");
    expect({9, 0, 0, 0}, COMMSCHED_INVALID_ARGUMENT, "pass.kind is 9");
    const commsched_pass_t pass = {COMMSCHED_FORWARD, 0, 0, 0};
    uint64_t count = 0;
    EXPECT_ENGINE_ERROR(
        commsched_engine_addresses(toy.engine(), &pass, nullptr, 1, &count),
        COMMSCHED_INVALID_ARGUMENT, HasSubstr("out_places is NULL"));
    return std::string();
  });
  EXPECT_EQ(error, "");
}

TEST(AddressesErrorsTest, FixedAddressesAreOfStage3) {
  ToyRun run = RunInStage(1, 2);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    commsched_step_plan_options_t options = ToyStepOptions(run);
    options.fixed_addresses = 1;
    commsched_step_plan_role_t role = commsched_step_plan_role_init();
    role.model = toy.model();
    role.num_ranks = 1;
    commsched_step_plan_t* plan = nullptr;
    EXPECT_ENGINE_ERROR(commsched_step_plan_build(&role, 1, &options, &plan),
                        COMMSCHED_INVALID_ARGUMENT,
                        HasSubstr("fixed_addresses is 1 with zero_stage 2"));
    return std::string();
  });
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace commsched::engine

// Modules that come in another order than the planned one, unannounced.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/float_address.h"
#include "test/engine/plain_toy.h"
#include "test/engine/toy_calls.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;
using Order = std::vector<uint32_t>;

ToyRun ReorderingRun(std::function<Order(const ToyPass&)> arrival) {
  ToyRun run;
  run.ranks = 3;
  run.engine.reorder_bytes = UINT64_MAX;
  run.engine.bucket_bytes = 4096;
  run.engine.micro_batches = 2;
  run.arrival = std::move(arrival);
  return run;
}

// Of stage 3: everything whole, or room for one module at a time.
struct Stage {
  uint32_t zero_stage;
  uint64_t max_live_bytes;
};
constexpr Stage kStages[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 53'000}};

// What accumulates over micro-batches takes more.
void SetStage(const Stage& stage, ToyRun* run) {
  run->engine.zero_stage = stage.zero_stage;
  run->engine.max_live_bytes = stage.max_live_bytes;
  if (stage.max_live_bytes > 0 && run->micro_batches() > 1) {
    run->engine.max_live_bytes += 27'000;
  }
}

ToyRun InOrder(ToyRun run) {
  run.arrival = nullptr;
  run.engine.reorder_bytes = 0;
  return run;
}

// In every stage the weights are to the bit what they are with modules in the
// planned order, which are those of a plain loop.
void ExpectWeightsOfThePlannedOrder(ToyRun run) {
  ToyResult planned;
  const std::vector<float> expected = ReferenceWeights(run);
  for (const Stage& stage : kStages) {
    SetStage(stage, &run);
    SCOPED_TRACE("stage " + std::to_string(stage.zero_stage) + ", live " +
                 std::to_string(run.engine.max_live_bytes));
    if (planned.weights.empty()) planned = RunToy(InOrder(run));
    ASSERT_EQ(planned.error, "");
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    for (const std::vector<float>& weights : result.weights) {
      ASSERT_EQ(weights.size(), expected.size());
      EXPECT_TRUE(SameBits(weights, planned.weights[0]));
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], expected[i], 1e-5) << i;
      }
    }
  }
}

Order Permutation(uint32_t index) {
  Order order = {kEmbed, kBlock0, kBlock1, kHead};
  while (index-- > 0) std::next_permutation(order.begin(), order.end());
  return order;
}

TEST(ReorderTest, ABranchThatAllRanksTakeOnSomeSteps) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return pass.step % 2 == 0 ? Order{kEmbed, kBlock0, kBlock1, kHead}
                              : Order{kEmbed, kBlock1, kBlock0, kHead};
  });
  run.steps = 4;
  ExpectWeightsOfThePlannedOrder(run);
}

TEST(ReorderTest, ABranchThatOneRankTakes) {
  ExpectWeightsOfThePlannedOrder(ReorderingRun([](const ToyPass& pass) {
    return Permutation(pass.rank == 1 ? 23 : 0);
  }));
}

TEST(ReorderTest, AnyOrderInAnyRankStepAndMicroBatch) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return Permutation((pass.step * 6 + pass.micro_batch * 3 +
                        static_cast<uint32_t>(pass.rank)) %
                       24);
  });
  run.steps = 4;
  ExpectWeightsOfThePlannedOrder(run);
}

TEST(ReorderTest, WithGradientsThatAreReducedInEachMicroBatch) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return Permutation((pass.step * 7 + pass.micro_batch * 11) % 24);
  });
  run.engine.micro_batches = 3;
  run.engine.accumulate_bytes = 1;
  ExpectWeightsOfThePlannedOrder(run);
}

TEST(ReorderTest, WithoutClippingAndMicroBatches) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return Permutation((pass.step * 7 + static_cast<uint32_t>(pass.rank)) % 24);
  });
  run.engine.micro_batches = 1;
  run.engine.clip_norm = 0;
  ExpectWeightsOfThePlannedOrder(run);
}

// What does not come before a later module may come after it, or not at all.
TEST(ReorderTest, ModulesAreLeftOutAndComeLate) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return Permutation((pass.step + 5 * static_cast<uint32_t>(pass.rank)) % 24);
  });
  run.engine.allow_skipped_modules = 1;
  run.steps = 6;
  run.skips = [](const ToyPass& pass) {
    const uint32_t turn =
        pass.step + pass.micro_batch + static_cast<uint32_t>(pass.rank);
    return (turn + pass.module) % 3 == 0;
  };
  ExpectWeightsOfThePlannedOrder(run);
}

// Where modules of a segment are apart, each is recomputed by itself.
TEST(ReorderTest, WithModulesThatAreRecomputed) {
  using Segments = std::vector<std::pair<uint32_t, uint32_t>>;
  const Segments recomputed[] = {{{kBlock0, kBlock1}},
                                 {{kBlock0, kHead}},
                                 {{kEmbed, kBlock0}, {kBlock1, kHead}}};
  for (const Segments& segments : recomputed) {
    ToyRun run = ReorderingRun([](const ToyPass& pass) {
      return Permutation((pass.step * 2 + pass.micro_batch +
                          static_cast<uint32_t>(pass.rank)) %
                         24);
    });
    run.ranks = 2;
    run.steps = 12;
    run.recomputed = segments;
    ExpectWeightsOfThePlannedOrder(run);
  }
}

// The recorded order is what is planned, here with a module that comes twice.
TEST(ReorderTest, AgainstARecordedOrder) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return pass.step == 0 ? Order{kHead, kEmbed, kBlock0, kHead, kBlock1}
                          : Order{kBlock0, kHead, kBlock1, kEmbed, kHead};
  });
  run.order = [](uint32_t) {
    return Order{kHead, kEmbed, kBlock0, kHead, kBlock1};
  };
  ExpectWeightsOfThePlannedOrder(run);
}

// Gradients of 16 bits that come late are rounded once more.
TEST(ReorderTest, ParametersAndGradientsOf16Bits) {
  ToyRun run = ReorderingRun([](const ToyPass& pass) {
    return Permutation((pass.step * 7 + static_cast<uint32_t>(pass.rank)) % 24);
  });
  run.engine.parameter_dtype = COMMSCHED_BF16;
  const std::vector<float> expected = ReferenceWeights(run);
  for (const Stage& stage : kStages) {
    SetStage(stage, &run);
    const ToyResult result = RunToy(run);
    ASSERT_EQ(result.error, "");
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result.weights[1][i], expected[i], 0.01) << i;
    }
  }
}

// All launches are those of the plan, whatever the order, and what is kept is
// what comes late: here block0's two parameters and gradients, but parameters
// only where the plan lets go of them.
TEST(ReorderTest, CostsNoCommunicationAndOnlyMemoryOfWhatIsLate) {
  for (const Stage& stage : kStages) {
    SCOPED_TRACE(stage.max_live_bytes);
    ToyRun run = ReorderingRun([](const ToyPass&) {
      return Order{kEmbed, kBlock1, kBlock0, kHead};
    });
    SetStage(stage, &run);
    const auto launches = [](const ToyRun& of) {
      uint64_t count = 0;
      const std::string error = OnRanks(of, [&](ToyRank& toy, int32_t rank) {
        std::string message = toy.Build();
        for (uint32_t t = 0; message.empty() && t < 3; ++t) {
          message = toy.Step(t);
        }
        EXPECT_EQ(commsched_engine_drain(toy.engine()), COMMSCHED_OK);
        commsched_session_counters_t counters =
            commsched_session_counters_init();
        EXPECT_EQ(commsched_session_get_counters(
                      commsched_engine_session(toy.engine()), &counters),
                  COMMSCHED_OK);
        if (rank == 0) count = counters.launches;
        return message;
      });
      EXPECT_EQ(error, "");
      return count;
    };
    EXPECT_EQ(launches(run), launches(InOrder(run)));
    const ToyResult late = RunToy(run);
    const ToyResult planned = RunToy(InOrder(run));
    const uint64_t block0 = (64 * 64 + 64) * sizeof(float);
    const uint64_t copies = stage.max_live_bytes > 0 ? 2 : 1;
    EXPECT_GE(late.info.reorder_bytes, block0);
    EXPECT_LE(late.info.reorder_bytes, copies * (block0 + 1024));
    EXPECT_EQ(late.info.arena_bytes, planned.info.arena_bytes);
    EXPECT_EQ(late.info.state_bytes,
              planned.info.state_bytes + late.info.reorder_bytes);
    EXPECT_EQ(planned.info.reorder_bytes, 0u);
  }
}

TEST(ReorderTest, AllocatesNothingOnceWarm) {
  ToyRun run = ReorderingRun(nullptr);
  SetStage(kStages[4], &run);
  // The model's own order is on the heap.
  const auto step = [](ToyRank& toy, uint32_t t) -> std::string {
    commsched_engine_t* engine = toy.engine();
    const uint32_t orders[][4] = {{kEmbed, kBlock0, kBlock1, kHead},
                                  {kHead, kBlock1, kEmbed, kBlock0}};
    commsched_engine_step_begin(engine);
    for (uint32_t mb : {0u, 1u}) {
      for (uint32_t m : orders[t % 2]) {
        commsched_engine_forward_begin(engine, m, mb);
        commsched_engine_forward_end(engine, m, mb);
      }
      for (uint32_t m : std::views::reverse(orders[t % 2])) {
        commsched_engine_backward_begin(engine, m, mb);
        commsched_engine_backward_end(engine, m, mb);
      }
    }
    commsched_engine_optimizer_step(engine, 0.1f);
    return commsched_engine_step_end(engine) == COMMSCHED_OK
               ? ""
               : commsched_engine_last_error();
  };
  EXPECT_EQ(AllocationsOnceWarm(run, step), 0u);
}

TEST(ReorderTest, AnEvaluationInAnotherOrderReadsWhatTheStepsLeft) {
  for (const Stage& stage : kStages) {
    ToyRun run = ReorderingRun(nullptr);
    SetStage(stage, &run);
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      std::string message = toy.Build();
      commsched_engine_t* engine = toy.engine();
      for (uint32_t step = 0; message.empty() && step < 3; ++step) {
        std::vector<float> in_order;
        message = toy.Weights(&in_order);
        EXPECT_EQ(commsched_engine_evaluation_begin(engine), COMMSCHED_OK);
        for (uint32_t m : Permutation((step * 5 + rank * 7 + 3) % 24)) {
          EXPECT_EQ(commsched_engine_forward_begin(engine, m, 0), COMMSCHED_OK);
          size_t begin = 0;
          for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
            std::vector<float> values(ToyParameters()[p].count());
            if (ToyParameters()[p].module == m) {
              EXPECT_EQ(commsched_engine_get_parameter(engine, p, values.data(),
                                                       values.size()),
                        COMMSCHED_OK);
              EXPECT_EQ(std::memcmp(values.data(), in_order.data() + begin,
                                    values.size() * sizeof(float)),
                        0);
            }
            begin += values.size();
          }
          EXPECT_EQ(commsched_engine_forward_end(engine, m, 0), COMMSCHED_OK);
        }
        EXPECT_EQ(commsched_engine_evaluation_end(engine), COMMSCHED_OK);
        if (message.empty()) message = toy.Step(step);
      }
      return message;
    });
    EXPECT_EQ(error, "");
  }
}

// ---- Errors -----------------------------------------------------------------

// One rank cannot go on, and all learn of it and why.
TEST(ReorderErrorTest, TooLittleMemoryForWhatIsLateIsNamedOnEveryRank) {
  for (uint64_t limit : {uint64_t{1}, uint64_t{20'000}}) {
    ToyRun run = ReorderingRun(nullptr);
    SetStage(kStages[4], &run);
    run.engine.reorder_bytes = limit;
    const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      const std::string message = toy.Build();
      commsched_engine_t* engine = toy.engine();
      if (rank == 2) {
        EXPECT_EQ(commsched_engine_step_begin(engine), COMMSCHED_OK);
        EXPECT_EQ(commsched_engine_forward_begin(engine, kBlock1, 0),
                  COMMSCHED_RESOURCE_EXHAUSTED);
      } else {
        EXPECT_NE(toy.Step(0), "");
        EXPECT_NE(commsched_engine_step_begin(engine), COMMSCHED_OK);
      }
      EXPECT_THAT(
          commsched_engine_last_error(),
          ::testing::AllOf(
              HasSubstr("forward_begin of module 2 'block1', micro-batch 0 on "
                        "rank 2"),
              HasSubstr("reorder_bytes is " + std::to_string(limit))));
      return message;
    });
    EXPECT_EQ(error, "");
  }
}

// Runs `body` in a step of the only rank.
void InAStep(const std::function<void(commsched_engine_t*)>& body,
             bool can_skip = false) {
  ToyRun run = ReorderingRun(nullptr);
  run.ranks = 1;
  run.engine.allow_skipped_modules = can_skip ? 1 : 0;
  SetStage(kStages[4], &run);
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t) {
    std::string message = toy.Build();
    EXPECT_EQ(commsched_engine_step_begin(toy.engine()), COMMSCHED_OK);
    body(toy.engine());
    return message;
  });
  EXPECT_EQ(error, "");
}

TEST(ReorderErrorTest, AModuleThatDoesNotComeAtAllIsNamed) {
  InAStep([](commsched_engine_t* engine) {
    for (uint32_t m : {kEmbed, kBlock1, kHead}) Forward(engine, m);
    const char* expected = "expected forward_begin of module 1 'block0'";
    ExpectRefused(commsched_engine_backward_begin(engine, kHead, 0), expected);
    ExpectRefused(commsched_engine_forward_begin(engine, kEmbed, 1), expected);
    ExpectRefused(commsched_engine_optimizer_step(engine, 0.1f), expected);
    Forward(engine, kBlock0);
    Backward(engine, kBlock0);
    Backward(engine, kHead);
  });
}

TEST(ReorderErrorTest, AModuleThatComesTwiceIsRefused) {
  InAStep([](commsched_engine_t* engine) {
    for (uint32_t m : {kBlock1, kEmbed}) Forward(engine, m);
    for (uint32_t m : {kBlock1, kEmbed}) {
      ExpectRefused(commsched_engine_forward_begin(engine, m, 0),
                    "expected forward_begin of module 3 'head'");
    }
    Forward(engine, kBlock0);
    ExpectRefused(commsched_engine_forward_begin(engine, kBlock0, 0),
                  "expected forward_begin of module 3 'head'");
  });
}

TEST(ReorderErrorTest, BackwardsRunInReverse) {
  InAStep([](commsched_engine_t* engine) {
    for (uint32_t m : {kBlock1, kEmbed, kHead, kBlock0}) Forward(engine, m);
    Backward(engine, kBlock0);
    // It was not late.
    ExpectRefused(commsched_engine_backward_begin(engine, kBlock1, 0),
                  "expected backward_begin of module 3 'head'");
    Backward(engine, kHead);
    ExpectRefused(commsched_engine_backward_begin(engine, kHead, 0),
                  "expected backward_begin of module 2 'block1'");
    Backward(engine, kEmbed);
    ExpectRefused(commsched_engine_optimizer_step(engine, 0.1f),
                  "expected backward_begin of module 2 'block1'");
    ExpectRefused(commsched_engine_backward_begin(engine, kBlock0, 0),
                  "expected backward_begin of module 2 'block1'");
    Backward(engine, kBlock1);
  });
}

TEST(ReorderErrorTest, ABackwardBeforeAllForwardsCameIsRefused) {
  InAStep([](commsched_engine_t* engine) {
    for (uint32_t m : {kBlock1, kBlock0, kEmbed}) Forward(engine, m);
    ExpectRefused(commsched_engine_backward_begin(engine, kEmbed, 0),
                  "expected forward_begin of module 3 'head'");
    Forward(engine, kHead);
  });
}

TEST(ReorderErrorTest, WhatWasLeftOutDoesNotComeBack) {
  InAStep(
      [](commsched_engine_t* engine) {
        for (uint32_t m : {kBlock1, kEmbed}) Forward(engine, m);
        Backward(engine, kEmbed);
        ExpectRefused(commsched_engine_forward_begin(engine, kBlock0, 0),
                      "expected backward_begin of module 2 'block1'");
        ExpectRefused(commsched_engine_backward_begin(engine, kBlock0, 0),
                      "expected backward_begin of module 2 'block1'");
        Backward(engine, kBlock1);
      },
      /*can_skip=*/true);
}

TEST(ReorderErrorTest, WithinALateModule) {
  InAStep([](commsched_engine_t* engine) {
    for (uint32_t m : {kBlock0, kBlock1, kHead}) Forward(engine, m);
    EXPECT_EQ(commsched_engine_forward_begin(engine, kEmbed, 0), COMMSCHED_OK);
    const float* values = nullptr;
    float* gradient = nullptr;
    EXPECT_EQ(FloatAddress(engine, 1, &values, &gradient), COMMSCHED_OK);
    EXPECT_EQ(values[5], ToyInitialValue(1, 5));
    // The head's shares a bucket with that of the embedding.
    EXPECT_EQ(FloatAddress(engine, 0, &values, &gradient), COMMSCHED_OK);
    EXPECT_EQ(values, nullptr);
    EXPECT_EQ(gradient, nullptr);
    const char* expected = "expected forward_end of module 0 'embed'";
    ExpectRefused(commsched_engine_forward_begin(engine, kEmbed, 0), expected);
    ExpectRefused(commsched_engine_forward_end(engine, kHead, 0), expected);
    ExpectRefused(commsched_engine_backward_end(engine, kEmbed, 0), expected);
    ExpectRefused(commsched_engine_optimizer_step(engine, 0.1f), expected);
    EXPECT_EQ(commsched_engine_forward_end(engine, kEmbed, 0), COMMSCHED_OK);
    EXPECT_EQ(FloatAddress(engine, 1, &values, &gradient), COMMSCHED_OK);
    EXPECT_EQ(values, nullptr);
    ExpectRefused(commsched_engine_forward_end(engine, kEmbed, 0),
                  "expected backward_begin of module 3 'head'");
  });
}

}  // namespace
}  // namespace commsched::engine

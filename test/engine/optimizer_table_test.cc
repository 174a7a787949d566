#include "engine/tables/optimizer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/format/checkpoint_part.h"
#include "commsched/engine.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

OptimizerTable TableNamed(const char* name) {
  OptimizerTable table;
  table.name = name;
  return table;
}

TEST(OptimizerTableTest, ATableThatSaysNeitherIsRefusedByName) {
  const Status refused = CheckOptimizerTable(TableNamed("lion"));
  EXPECT_EQ(refused.code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(refused.message(),
            "engine: optimizer 'lion' says neither element_wise nor "
            "whole_tensors; it must say one of them");
}

TEST(OptimizerTableTest, ATableThatSaysBothIsRefusedByName) {
  OptimizerTable table = TableNamed("lion");
  table.element_wise = true;
  table.whole_tensors = true;
  const Status refused = CheckOptimizerTable(table);
  EXPECT_EQ(refused.code(), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(refused.message(),
              HasSubstr("'lion' says both element_wise and whole_tensors"));
}

TEST(OptimizerTableTest, WholeTensorsAreUnimplementedByName) {
  OptimizerTable table = TableNamed("muon");
  table.whole_tensors = true;
  const Status refused = CheckOptimizerTable(table);
  EXPECT_EQ(refused.code(), COMMSCHED_UNIMPLEMENTED);
  EXPECT_THAT(refused.message(), HasSubstr("'muon' needs whole_tensors"));
}

TEST(OptimizerTableTest, TheEnginesOwnAreMadeByTheirNumber) {
  const OptimizerSettings settings;
  for (const auto& [number, name] :
       {std::pair{COMMSCHED_ADAMW, "adamw"}, {COMMSCHED_SGD, "sgd"}}) {
    const OptimizerTable table = MakeOptimizer(number, &settings);
    EXPECT_STREQ(table.name, name);
    EXPECT_TRUE(CheckOptimizerTable(table).ok());
  }
}

// Else a checkpoint would have nothing of it.
TEST(OptimizerTableTest, CheckpointsKnowWhatTheEnginesOwnKeep) {
  const OptimizerSettings settings = {.momentum = 0.9f};
  for (const OptimizerTable& table : {AdamW(&settings), Sgd(&settings)}) {
    for (uint32_t i = 0; i < table.state_values; ++i) {
      bool known = false;
      for (uint32_t k = 0; k < kNumStateKinds; ++k) {
        known |=
            std::string(table.names[i]) == NameOf(static_cast<StateKind>(k));
      }
      EXPECT_TRUE(known) << table.names[i];
    }
  }
}

TEST(OptimizerTableTest, SgdKeepsAValueForItsMomentumOnly) {
  OptimizerSettings settings;
  EXPECT_EQ(Sgd(&settings).state_values, 0u);
  settings.momentum = 0.9f;
  EXPECT_EQ(Sgd(&settings).state_values, 1u);
}

// What the kernels of an optimizer were called with.
struct OptimizerCalls {
  commsched_engine_kernels_t Table() {
    commsched_engine_kernels_t table = commsched_engine_kernels_init();
    table.user = this;
    table.adamw = [](void* user, commsched_stream_t,
                     const commsched_adamw_args_t* args) -> commsched_status_t {
      static_cast<OptimizerCalls*>(user)->adamw.push_back(*args);
      return COMMSCHED_OK;
    };
    table.sgd = [](void* user, commsched_stream_t,
                   const commsched_sgd_args_t* args) -> commsched_status_t {
      static_cast<OptimizerCalls*>(user)->sgd.push_back(*args);
      return COMMSCHED_OK;
    };
    return table;
  }

  std::vector<commsched_adamw_args_t> adamw;
  std::vector<commsched_sgd_args_t> sgd;
};

// A shard of 1024 elements with two segments, in bf16 but for its masters.
struct SmallShard {
  OptimizerBucket Bucket() {
    return {.masters = masters,
            .gradients = gradients,
            .copy = copy,
            .gradient_dtype = COMMSCHED_BF16,
            .copy_dtype = COMMSCHED_BF16,
            .gradient_size = 2,
            .copy_size = 2,
            .state = state,
            .shard_count = 1024,
            .segments = &segments,
            .lr = 0.5f};
  }

  float masters[1024];
  std::byte gradients[2048], copy[2048];
  float state[2048];
  const std::vector<OptimizerSegment> segments = {
      {.begin = 0, .count = 100, .decay = 0.1f},
      {.begin = 256, .count = 30, .decay = 0}};
};

TEST(OptimizerTableTest, AdamWStepsEachSegmentWithItsMoments) {
  OptimizerCalls calls;
  const Kernels kernels(calls.Table(), CpuKernels(), commsched_stream_caller());
  const OptimizerSettings settings = {
      .kernels = &kernels, .beta1 = 0.8f, .beta2 = 0.7f, .epsilon = 1e-6f};
  const OptimizerTable table = AdamW(&settings);
  SmallShard shard;
  ASSERT_TRUE(
      table.step(table.user, commsched_stream_caller(), shard.Bucket()).ok());
  ASSERT_EQ(calls.adamw.size(), 2u);
  EXPECT_EQ(calls.adamw[0].m, shard.state);
  EXPECT_EQ(calls.adamw[0].decay, 0.1f);
  const commsched_adamw_args_t& second = calls.adamw[1];
  EXPECT_EQ(second.master, shard.masters + 256);
  EXPECT_EQ(second.gradient, shard.gradients + 2 * 256);
  EXPECT_EQ(second.copy, shard.copy + 2 * 256);
  EXPECT_EQ(second.m, shard.state + 256);
  EXPECT_EQ(second.v, shard.state + 1024 + 256);
  EXPECT_EQ(second.count, 30u);
  EXPECT_EQ(second.decay, 0.0f);
  EXPECT_THAT((std::vector{second.lr, second.beta1, second.beta2}),
              ElementsAre(0.5f, 0.8f, 0.7f));
}

TEST(OptimizerTableTest, SgdHasAVelocityWithMomentumOnly) {
  OptimizerCalls calls;
  const Kernels kernels(calls.Table(), CpuKernels(), commsched_stream_caller());
  OptimizerSettings settings = {.kernels = &kernels};
  SmallShard shard;
  const OptimizerTable table = Sgd(&settings);
  ASSERT_TRUE(
      table.step(table.user, commsched_stream_caller(), shard.Bucket()).ok());
  settings.momentum = 0.9f;
  ASSERT_TRUE(
      table.step(table.user, commsched_stream_caller(), shard.Bucket()).ok());
  ASSERT_EQ(calls.sgd.size(), 4u);
  EXPECT_EQ(calls.sgd[1].velocity, nullptr);
  EXPECT_EQ(calls.sgd[3].velocity, shard.state + 256);
  EXPECT_EQ(calls.sgd[3].momentum, 0.9f);
}

}  // namespace
}  // namespace commsched::engine

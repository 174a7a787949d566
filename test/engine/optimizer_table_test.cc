#include "engine/tables/optimizer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "commsched/engine.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Element by element, with a step that does nothing.
commsched_optimizer_table_t TableNamed(const char* name) {
  commsched_optimizer_table_t table = commsched_optimizer_table_init();
  table.name = name;
  table.element_wise = 1;
  table.step = [](const commsched_optimizer_table_t*, commsched_stream_t,
                  const commsched_optimizer_bucket_t*) {
    return commsched_status_t{COMMSCHED_OK};
  };
  return table;
}

// How `table` is refused.
std::string Refusal(const commsched_optimizer_table_t& table) {
  const Status refused = CheckOptimizerTable(table);
  EXPECT_EQ(refused.code(), COMMSCHED_INVALID_ARGUMENT);
  return refused.message();
}

TEST(OptimizerTableTest, ATableThatSaysNeitherIsRefusedByName) {
  commsched_optimizer_table_t table = TableNamed("lion");
  table.element_wise = 0;
  EXPECT_EQ(Refusal(table),
            "engine: optimizer 'lion' says neither element_wise nor "
            "whole_tensors; it must say one of them");
}

TEST(OptimizerTableTest, ATableThatSaysBothIsRefusedByName) {
  commsched_optimizer_table_t table = TableNamed("lion");
  table.whole_tensors = 1;
  EXPECT_THAT(Refusal(table),
              HasSubstr("'lion' says both element_wise and whole_tensors"));
}

TEST(OptimizerTableTest, ATableWithoutAStepIsRefused) {
  commsched_optimizer_table_t table = TableNamed("lion");
  table.step = nullptr;
  EXPECT_EQ(Refusal(table), "engine: optimizer 'lion' has no step");
}

TEST(OptimizerTableTest, NamesThatAFileCannotHaveAreRefused) {
  EXPECT_THAT(Refusal(TableNamed("the lion")),
              HasSubstr("optimizer is called 'the lion'; it must be of"));
  commsched_optimizer_table_t table = TableNamed("lion");
  table.state_values = 2;
  table.state_names[0] = "lion.m";
  EXPECT_THAT(Refusal(table), HasSubstr("calls state value 1 NULL"));
  table.state_names[1] = "lion m";
  EXPECT_THAT(Refusal(table), HasSubstr("calls state value 1 'lion m'"));
  for (const char* taken : {"lion.m", "value"}) {
    table.state_names[1] = taken;
    EXPECT_THAT(Refusal(table), HasSubstr("the name of something else"));
  }
  table.state_values = COMMSCHED_OPTIMIZER_MAX_STATE + 1;
  EXPECT_THAT(Refusal(table), HasSubstr("keeps 9 values per weight; the limit "
                                        "is 8"));
}

TEST(OptimizerTableTest, ATablesOwnCheckHasTheLastWord) {
  commsched_optimizer_table_t table = TableNamed("lion");
  table.check = [](const commsched_optimizer_table_t* self) {
    commsched_set_last_error(self->name);
    return commsched_status_t{COMMSCHED_OUT_OF_RANGE};
  };
  const Status refused = CheckOptimizerTable(table);
  EXPECT_EQ(refused.code(), COMMSCHED_OUT_OF_RANGE);
  EXPECT_EQ(refused.message(), "lion");
}

TEST(OptimizerTableTest, TheEngineKeepsNamesOfItsOwn) {
  std::string name = "lion";
  std::string state = "lion.m";
  commsched_optimizer_table_t table = TableNamed(name.c_str());
  table.state_values = 1;
  table.state_names[0] = state.c_str();
  const Optimizer kept(&table);
  name = "wolf";
  state = "wolf.m";
  EXPECT_STREQ(kept.name(), "lion");
  EXPECT_STREQ(kept.state_name(0), "lion.m");
}

TEST(OptimizerTableTest, SgdKeepsAValueForItsMomentumOnly) {
  EXPECT_EQ(commsched_sgd(0, 0).state_values, 0u);
  EXPECT_EQ(commsched_sgd(0.9f, 0).state_values, 1u);
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
  explicit SmallShard(const Kernels& kernels) {
    segments[0].count = 100;
    segments[0].decay = 0.1f;
    segments[1].begin = 256;
    segments[1].count = 30;
    for (commsched_optimizer_segment_t& each : segments) {
      each.lr = 0.5f;
      each.beta1 = 0.8f;
      each.beta2 = 0.7f;
    }
    bucket.num_segments = 2;
    bucket.segments = segments;
    bucket.shard_count = 1024;
    bucket.masters = masters;
    bucket.gradients = gradients;
    bucket.copy = copy;
    bucket.state = state;
    bucket.gradient_dtype = COMMSCHED_BF16;
    bucket.copy_dtype = COMMSCHED_BF16;
    bucket.kernels = &kernels;
  }

  void StepWith(const commsched_optimizer_table_t& table) {
    EXPECT_EQ(table.step(&table, commsched_stream_caller(), &bucket),
              COMMSCHED_OK);
  }

  float masters[1024];
  std::byte gradients[2048], copy[2048];
  float state[2048];
  commsched_optimizer_segment_t segments[2] = {};
  commsched_optimizer_bucket_t bucket = {};
};

TEST(OptimizerTableTest, AdamWStepsEachSegmentWithItsMoments) {
  OptimizerCalls calls;
  const Kernels kernels(calls.Table(), CpuKernels(), commsched_stream_caller());
  SmallShard shard(kernels);
  shard.StepWith(commsched_adamw(0.9f, 0.95f, 1e-6f));
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
  EXPECT_THAT(
      (std::vector{second.lr, second.beta1, second.beta2, second.epsilon}),
      ElementsAre(0.5f, 0.8f, 0.7f, 1e-6f));
}

TEST(OptimizerTableTest, SgdHasAVelocityWithMomentumOnly) {
  OptimizerCalls calls;
  const Kernels kernels(calls.Table(), CpuKernels(), commsched_stream_caller());
  SmallShard shard(kernels);
  shard.StepWith(commsched_sgd(0, 0));
  shard.StepWith(commsched_sgd(0.9f, 0));
  ASSERT_EQ(calls.sgd.size(), 4u);
  EXPECT_EQ(calls.sgd[1].velocity, nullptr);
  EXPECT_EQ(calls.sgd[3].velocity, shard.state + 256);
  EXPECT_EQ(calls.sgd[3].momentum, 0.9f);
}

}  // namespace
}  // namespace commsched::engine

// An optimizer of the test's own that needs all of each parameter at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "commsched/optimizer.h"
#include "test/checkpoint/temporary_folder.h"
#include "test/engine/ranks_in_name.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::Values;

std::atomic<uint32_t> g_cut_segments{0};

// Moves a parameter by `lr` along its gradient's direction, which no part of it
// knows alone, and counts its steps in its state.
commsched_status_t StepAlongDirection(
    const commsched_optimizer_table_t*, commsched_stream_t,
    const commsched_optimizer_bucket_t* bucket) {
  for (uint32_t s = 0; s < bucket->num_segments; ++s) {
    const commsched_optimizer_segment_t& segment = bucket->segments[s];
    uint64_t count = 1;
    for (uint32_t d = 0; d < segment.num_dims; ++d) count *= segment.dims[d];
    if (count != segment.count || segment.in_parameter != 0) ++g_cut_segments;
    const auto* const gradient =
        static_cast<const float*>(bucket->gradients) + segment.begin;
    float squares = 0;
    for (uint64_t i = 0; i < segment.count; ++i) {
      squares += gradient[i] * gradient[i];
    }
    for (uint64_t i = 0; i < segment.count; ++i) {
      bucket->masters[segment.begin + i] -=
          segment.lr * gradient[i] / std::sqrt(squares);
      bucket->state[segment.begin + i] += 1;
    }
  }
  return COMMSCHED_OK;
}

commsched_optimizer_table_t DirectionTable() {
  commsched_optimizer_table_t table = commsched_optimizer_table_init();
  table.name = "direction";
  table.state_values = 1;
  table.state_names[0] = "direction.steps";
  table.whole_tensors = 1;
  table.step = StepAlongDirection;
  return table;
}

// (Ranks, ZeRO stage, bucket bytes)
class WholeTensorsTest
    : public ::testing::TestWithParam<std::tuple<int32_t, uint32_t, uint64_t>> {
 protected:
  static ToyRun Run() {
    const auto& [ranks, stage, bucket_bytes] = GetParam();
    ToyRun run = ToyRunOf(ranks, stage, bucket_bytes);
    run.optimizer = DirectionTable();
    return run;
  }
};

TEST_P(WholeTensorsTest, EveryParameterIsSteppedAsOne) {
  g_cut_segments = 0;
  const ToyResult sharded = RunToy(Run());
  ASSERT_EQ(sharded.error, "");
  EXPECT_EQ(g_cut_segments, 0u);
  ToyRun run = Run();
  run.options.zero_stage = 0;
  const ToyResult whole = RunToy(run);
  ASSERT_EQ(whole.error, "");
  for (const std::vector<float>& weights : sharded.weights) {
    EXPECT_TRUE(SameBits(weights, whole.weights[0]));
  }
}

// Under the names of its table, in a layout that is not that of others.
TEST_P(WholeTensorsTest, ItsCheckpointGoesOnOnAnotherNumberOfRanks) {
  const TemporaryFolder folder;
  ToyStretch stretch;
  stretch.run = Run();
  stretch.end = 2;
  stretch.save = folder.path();
  ASSERT_EQ(TrainToy(stretch), "");
  std::unique_ptr<Checkpoint> checkpoint;
  ASSERT_TRUE(Checkpoint::Open(folder.path(), nullptr, &checkpoint).ok());
  EXPECT_THAT(checkpoint->Kinds(),
              ::testing::ElementsAre("direction.steps", "value"));
  float steps = 0;
  ASSERT_TRUE(checkpoint->Read({0, "direction.steps", 3, 1}, &steps).ok());
  EXPECT_EQ(steps, 2);
  stretch.load = folder.path();
  stretch.save.clear();
  stretch.run.ranks = 5 - stretch.run.ranks;
  stretch.run.options.zero_stage = 1;
  stretch.end = 3;
  EXPECT_EQ(TrainToy(stretch), "");
}

// With AdamW, whose bits do not depend on where shards end.
TEST_P(WholeTensorsTest, OnlyAnAtomicParameterIsSteppedAsOne) {
  ToyRun run = Run();
  run.optimizer = commsched_adamw(0.9f, 0.95f, 1e-8f);
  const ToyResult plain = RunToy(run);
  ASSERT_EQ(plain.error, "");
  constexpr uint32_t kAtomic = 4;
  g_cut_segments = 0;
  run.describe = [](uint32_t parameter, commsched_parameter_desc_t* desc) {
    desc->atomic = parameter == kAtomic ? 1 : 0;
  };
  run.optimizer.step = [](const commsched_optimizer_table_t* self,
                          commsched_stream_t stream,
                          const commsched_optimizer_bucket_t* bucket) {
    for (uint32_t s = 0; s < bucket->num_segments; ++s) {
      const commsched_optimizer_segment_t& segment = bucket->segments[s];
      if (segment.parameter == kAtomic &&
          segment.count != ToyParameters()[kAtomic].count()) {
        ++g_cut_segments;
      }
    }
    const auto adamw = commsched_adamw(0.9f, 0.95f, 1e-8f);
    return adamw.step(self, stream, bucket);
  };
  const ToyResult atomic = RunToy(run);
  ASSERT_EQ(atomic.error, "");
  EXPECT_EQ(g_cut_segments, 0u);
  EXPECT_TRUE(SameBits(atomic.weights[0], plain.weights[0]));
}

INSTANTIATE_TEST_SUITE_P(RanksStagesAndBuckets, WholeTensorsTest,
                         Combine(Values(2, 3, 4), Values(1u, 2u, 3u),
                                 Values(uint64_t{4096}, uint64_t{1} << 20)),
                         RanksInName());

}  // namespace
}  // namespace commsched::engine

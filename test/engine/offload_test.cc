// The optimizer's state in a pool: the same training with less memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "test/engine/test_pools.h"
#include "test/engine/toy_model.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::Values;

ToyRun Offloaded(ToyRun run) {
  run.pools = std::make_shared<TestPools>();
  return run;
}

ToyRun RunOf(uint32_t stage) {
  ToyRun run;
  run.engine.zero_stage = stage;
  run.engine.bucket_bytes = 4096;
  run.steps = 4;
  return run;
}

// The one with the shape, and how.
struct Variant {
  const char* name;
  void (*change)(ToyRun&);
};

class OffloadBitsTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, Variant>> {};

TEST_P(OffloadBitsTest, WeightsAreThoseOfStateInMemory) {
  ToyRun run = RunOf(std::get<0>(GetParam()));
  std::get<1>(GetParam()).change(run);
  ToyRun memory = run;
  memory.engine.offload_staging_bytes = 0;
  const ToyResult in_memory = RunToy(memory);
  ASSERT_EQ(in_memory.error, "");
  const ToyResult offloaded = RunToy(Offloaded(run));
  ASSERT_EQ(offloaded.error, "");
  for (size_t rank = 0; rank < in_memory.weights.size(); ++rank) {
    EXPECT_TRUE(SameBits(offloaded.weights[rank], in_memory.weights[rank]))
        << "rank " << rank;
  }
  EXPECT_EQ(offloaded.norm, in_memory.norm);
}

void Halve(ToyRun& run) {
  run.engine.parameter_dtype = COMMSCHED_BF16;
  run.engine.gradient_dtype = COMMSCHED_BF16;
}

INSTANTIATE_TEST_SUITE_P(
    StagesAndVariants, OffloadBitsTest,
    Combine(Values(0u, 1u, 2u, 3u),
            Values(Variant{"adamw", [](ToyRun&) {}},
                   Variant{"unclipped",
                           [](ToyRun& run) { run.engine.clip_norm = 0; }},
                   Variant{"masters", Halve},
                   Variant{"one_slot",
                           [](ToyRun& run) {
                             Halve(run);
                             run.engine.offload_staging_bytes = 60'000;
                           }},
                   Variant{"a_slot_each",
                           [](ToyRun& run) {
                             run.engine.offload_staging_bytes = 1 << 20;
                           }},
                   Variant{"momentum",
                           [](ToyRun& run) {
                             run.engine.optimizer = COMMSCHED_SGD;
                             run.engine.momentum = 0.9f;
                           }},
                   Variant{"only_masters",
                           [](ToyRun& run) {
                             Halve(run);
                             run.engine.optimizer = COMMSCHED_SGD;
                           }},
                   Variant{"windows",
                           [](ToyRun& run) {
                             run.engine.micro_batches = 3;
                             run.engine.accumulate_bytes = 8192;
                           }},
                   Variant{"serial",
                           [](ToyRun& run) {
                             run.plan.schedule = COMMSCHED_SERIAL;
                           }},
                   Variant{"recorded",
                           [](ToyRun& run) {
                             run.order = [](uint32_t step) {
                               return step < 2
                                          ? std::vector<uint32_t>{0, 2, 1, 3}
                                          : std::vector<uint32_t>{1, 0, 2, 3};
                             };
                           }})),
    [](const auto& info) {
      return std::string(std::get<1>(info.param).name) + "_in_stage_" +
             std::to_string(std::get<0>(info.param));
    });

}  // namespace
}  // namespace commsched::engine

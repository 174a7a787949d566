// The engine where a seed drives the streams: no access races with another.
#include <string>

#include "gtest/gtest.h"
#include "test/engine/toy_training.h"
#include "test/engine_cuda/gpu_toys.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched::engine {
namespace {

class EngineDeviceRaceTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  // Trains, and fails if it goes wrong or an access races.
  static void ExpectNoRace(const ToyRun& run, uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ToyResult host = RunToy(run);
    ASSERT_EQ(host.error, "");
    fake_gpu_deterministic(seed);
    // A drain is told by the monitor what is complete.
    fake_gpu_hosts_share(1);
    const ToyResult device = RunToy(OnDevices(run));
    EXPECT_STREQ(fake_gpu_first_race(), "");
    fake_gpu_deterministic(0);
    ASSERT_EQ(device.error, "");
    for (size_t rank = 0; rank < device.weights.size(); ++rank) {
      EXPECT_TRUE(SameBits(device.weights[rank], host.weights[rank]))
          << "rank " << rank;
    }
  }
};

TEST_P(EngineDeviceRaceTest, NoAccessRacesWithAnother) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    ToyRun run;
    run.options.zero_stage = GetParam();
    run.engine.clip_norm = 0.5f;
    run.steps = 5;
    ExpectNoRace(run, seed);
  }
}

TEST_P(EngineDeviceRaceTest, NoneDoesInMicroBatchesOf16Bits) {
  ToyRun run;
  run.options.zero_stage = GetParam();
  run.options.micro_batches = 3;
  run.options.accumulate_bytes = 40'000;
  run.options.parameter_dtype = COMMSCHED_BF16;
  run.options.reduce_dtype = COMMSCHED_BF16;
  run.steps = 5;
  ExpectNoRace(run, 4);
}

INSTANTIATE_TEST_SUITE_P(Stages, EngineDeviceRaceTest,
                         ::testing::Values(0u, 1u, 2u, 3u));

}  // namespace
}  // namespace commsched::engine

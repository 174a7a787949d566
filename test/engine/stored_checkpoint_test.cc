// Checkpoints that version 0.2.0 has written: SaveToy() of each run below wrote
// test/engine/stored. They stay as they are, so that what users have saved
// loads.

#include <gtest/gtest.h>
#include <xxhash.h>

#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

ToyRun AdamW() { return ToyRunOf(2, 1); }

ToyRun ScaledBf16() {
  ToyRun run = ToyRunOf(3, 3);
  run.options.parameter_dtype = COMMSCHED_BF16;
  run.options.reduce_dtype = COMMSCHED_BF16;
  run.engine.loss_scale = 1024;
  run.engine.loss_scale_window = 2;
  run.options.micro_batches = 2;
  return run;
}

ToyRun OffloadedMomentum() {
  ToyRun run = ToyRunOf(2, 2);
  run.optimizer = commsched_sgd(0.9f, 0);
  run.pools = std::make_shared<TestPools>();
  return run;
}

// Goes on from step 3 to step 6 on so many ranks, in another shape.
struct Resumed {
  int32_t ranks;
  uint32_t stage;
  uint64_t bucket_bytes;
  uint64_t weights;  // XXH3 of rank 0's.
};

struct Stored {
  const char* folder;
  ToyRun (*run)();
  std::vector<Resumed> resumed;
};

void PrintTo(const Stored& stored, std::ostream* out) { *out << stored.folder; }

class StoredCheckpointTest : public ::testing::TestWithParam<Stored> {
 protected:
  static std::string Path() {
    return std::filesystem::path(COMMSCHED_STORED) / GetParam().folder;
  }
};

TEST_P(StoredCheckpointTest, GoesOnWithTheBitsThatItAlwaysHad) {
  for (const Resumed& each : GetParam().resumed) {
    ToyStretch stretch;
    stretch.run = GetParam().run();
    stretch.run.ranks = each.ranks;
    stretch.run.options.zero_stage = each.stage;
    stretch.run.options.bucket_bytes = each.bucket_bytes;
    stretch.load = Path();
    stretch.end = 6;
    std::vector<std::vector<float>> weights;
    ASSERT_EQ(TrainToy(stretch, &weights), "");
    EXPECT_EQ(XXH3_64bits(weights[0].data(), weights[0].size() * sizeof(float)),
              each.weights)
        << each.ranks << " ranks, stage " << each.stage;
  }
}

TEST_P(StoredCheckpointTest, HasWhatTheSameTrainingSavesToday) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), GetParam().run()), "");
  EXPECT_TRUE(SameBits(ContentOf(folder.path()), ContentOf(Path())));
}

INSTANTIATE_TEST_SUITE_P(
    Runs, StoredCheckpointTest,
    ::testing::Values(Stored{"adamw",
                             AdamW,
                             {{2, 1, 16384, 0x7d99dda6622ef865},
                              {2, 3, 1024, 0x7d99dda6622ef865},
                              {3, 2, 16384, 0xbd2cccf4033da7e0},
                              {1, 0, 16384, 0x1e71550d6ecccaf2}}},
                      Stored{"scaled_bf16",
                             ScaledBf16,
                             {{3, 3, 16384, 0xd9d4550f9bd9070b},
                              {3, 0, 1024, 0xd9d4550f9bd9070b},
                              {2, 1, 16384, 0x173f8a11a364e653},
                              {4, 3, 1024, 0xa756638470623d9a}}},
                      Stored{"offloaded_momentum",
                             OffloadedMomentum,
                             {{2, 2, 16384, 0x49b9d4756a8abe25},
                              {2, 3, 1024, 0x49b9d4756a8abe25},
                              {3, 1, 16384, 0x457c30de1300ce2d}}}),
    [](const auto& info) { return info.param.folder; });

}  // namespace
}  // namespace commsched::engine

// I4 on the real model: final weights are the same bits for every ZeRO stage,
// bucket size, cap and schedule.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/trainer/data.h"
#include "examples/trainer/options.h"
#include "examples/trainer/random.h"
#include "examples/trainer/training.h"

namespace commsched::trainer {
namespace {

Dataset NoiseDataset() {
  std::vector<uint8_t> text(20000);
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<uint8_t>(RandomBelow(256, 1, 2, i));
  }
  return Dataset(std::move(text));
}

Options SmallRun() {
  Options options;
  options.config = PresetOf("nano")->config;
  options.deterministic = true;
  options.steps = 3;
  options.batch = 8;
  options.seq = 16;
  options.val_batches = 1;
  options.lr = 3e-3;
  options.bucket_bytes = 1 << 20;
  return options;
}

std::string Digest(const Options& options, const Dataset& dataset) {
  const absl::StatusOr<Report> report = Train(options, dataset);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->weights_sha256 : "";
}

class WeightBitsTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(WeightBitsTest, AreTheSameForAnyBucketCapAndSchedule) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  // The reference is a run that shares nothing with the grid but the model.
  options.zero = 0;
  options.bucket_bytes = 4 << 20;
  const std::string expected = Digest(options, dataset);
  options.zero = GetParam();
  for (uint64_t bucket_kib : {64, 1024, 25 * 1024}) {
    for (int64_t cap_launches : {1, 2, 8}) {
      for (bool serial : {true, false}) {
        options.bucket_bytes = bucket_kib << 10;
        options.cap_launches = cap_launches;
        options.serial = serial;
        EXPECT_EQ(Digest(options, dataset), expected)
            << "bucket " << bucket_kib << " KiB, cap " << cap_launches
            << (serial ? ", serial" : ", overlap");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ZeroStages, WeightBitsTest,
                         ::testing::Values(0, 1, 2));

TEST(Zero3BitsTest, AreTheSameForAnyBucketLimitCapAndSchedule) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  options.zero = 0;
  const std::string expected = Digest(options, dataset);
  options.zero = 3;
  struct Memory {
    uint64_t bucket_kib;
    uint64_t live_kib;
  };
  for (const Memory& memory : {Memory{64, 1536}, Memory{64, 2560},
                               Memory{1024, 6144}, Memory{25 * 1024, 0}}) {
    for (int64_t cap_launches : {1, 8}) {
      for (bool serial : {true, false}) {
        options.bucket_bytes = memory.bucket_kib << 10;
        options.max_live_bytes = memory.live_kib << 10;
        options.cap_launches = cap_launches;
        options.serial = serial;
        const absl::StatusOr<Report> report = Train(options, dataset);
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_EQ(report->weights_sha256, expected)
            << "bucket " << memory.bucket_kib << " KiB, live "
            << memory.live_kib << " KiB, cap " << cap_launches
            << (serial ? ", serial" : ", overlap");
        EXPECT_GT(report->peak_live_bytes, 0u);
        if (options.max_live_bytes > 0) {
          EXPECT_LE(report->engine.arena_bytes, options.max_live_bytes);
          EXPECT_LE(report->peak_live_bytes, options.max_live_bytes);
        }
      }
    }
  }
}

// And as much less memory as there is offloaded, but for what is on its way.
TEST(OffloadBitsTest, AreTheSameWithTheStateInAFile) {
  const Dataset dataset = NoiseDataset();
  for (const int64_t zero : {0, 1, 2, 3}) {
    Options options = SmallRun();
    options.zero = zero;
    options.micro_batches = 2;
    options.eval_every = 1;
    options.bucket_bytes = 256 << 10;
    options.dtype = zero % 2 == 0 ? "bf16" : "fp32";
    const absl::StatusOr<Report> in_memory = Train(options, dataset);
    ASSERT_TRUE(in_memory.ok()) << in_memory.status();
    options.offload_dir = ::testing::TempDir();
    const absl::StatusOr<Report> offloaded = Train(options, dataset);
    ASSERT_TRUE(offloaded.ok()) << offloaded.status();
    EXPECT_EQ(offloaded->weights_sha256, in_memory->weights_sha256)
        << "ZeRO-" << zero;
    EXPECT_EQ(offloaded->engine.offloaded_bytes,
              in_memory->engine.optimizer_bytes);
    EXPECT_EQ(
        in_memory->engine.state_bytes - offloaded->engine.state_bytes,
        offloaded->engine.offloaded_bytes - offloaded->engine.staging_bytes);
    EXPECT_GT(offloaded->copy_s, 0);
  }
}

TEST(Zero3BitsTest, SurviveValidationMicroBatchesAndSmallParameters) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  options.micro_batches = 2;
  const absl::StatusOr<Report> expected = Train(options, dataset);
  ASSERT_TRUE(expected.ok()) << expected.status();
  options.zero = 3;
  options.bucket_bytes = 64 << 10;
  options.eval_every = 1;
  options.persist_below = 4096;
  options.max_live_bytes = 6 << 20;
  const absl::StatusOr<Report> report = Train(options, dataset);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->weights_sha256, expected->weights_sha256);
  EXPECT_EQ(report->val_loss, expected->val_loss);
}

// Of one choice: no bucket accumulates.
TEST(RunBitsTest, SurviveShardsOfGradientsThatAreReducedInEachMicroBatch) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  options.micro_batches = 2;
  options.accumulate_bytes = 1;
  options.zero = 0;
  const std::string expected = Digest(options, dataset);
  for (int64_t zero : {1, 2, 3}) {
    for (uint64_t bucket_kib : {64, 1024}) {
      options.zero = zero;
      options.bucket_bytes = bucket_kib << 10;
      options.max_live_bytes = zero == 3 && bucket_kib == 64 ? 2560 << 10 : 0;
      EXPECT_EQ(Digest(options, dataset), expected)
          << "stage " << zero << ", bucket " << bucket_kib << " KiB";
    }
  }
}

TEST(RunBitsTest, SurviveSmallerFirstAndLastBuckets) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  const std::string expected = Digest(options, dataset);
  options.edge_bytes = 64 << 10;
  for (int64_t zero : {0, 2}) {
    options.zero = zero;
    EXPECT_EQ(Digest(options, dataset), expected) << "stage " << zero;
  }
}

TEST(RunBitsTest, DependOnTheSeed) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  const std::string first = Digest(options, dataset);
  options.seed = 2;
  EXPECT_NE(Digest(options, dataset), first);
}

TEST(RunBitsTest, SurviveALinkCoalescingAndAnArena) {
  const Dataset dataset = NoiseDataset();
  Options options = SmallRun();
  options.bucket_bytes = 64 << 10;
  const std::string expected = Digest(options, dataset);
  options.coalesce_bytes = 1 << 20;
  options.link = {.bytes_per_s = 1e9, .latency_ns = 20'000};
  options.arena_bytes = 2 << 20;
  options.cap_bytes = 300'000;
  EXPECT_EQ(Digest(options, dataset), expected);
}

}  // namespace
}  // namespace commsched::trainer

// Activations that are computed again within backward: the same bits, from less
// memory.

#include <gtest/gtest.h>

#include <cstdint>

#include "examples/trainer/data.h"
#include "examples/trainer/model.h"
#include "examples/trainer/options.h"
#include "examples/trainer/training.h"
#include "test/trainer/training_ranks.h"

namespace commsched::trainer {
namespace {

Options SmallRun() {
  Options options;
  options.config = {.context = 32, .layers = 3, .heads = 4, .channels = 64};
  options.deterministic = true;
  options.steps = 2;
  options.eval_every = 1;
  options.batch = 8;
  options.seq = 32;
  options.val_batches = 1;
  options.lr = 3e-3;
  options.bucket_bytes = 64 << 10;
  return options;
}

// Recomputation changes nothing but the memory.
void ExpectBitsOfNoRecomputation(Options options) {
  const Dataset dataset = NoiseDataset();
  const absl::StatusOr<Report> expected = Train(options, dataset);
  ASSERT_TRUE(expected.ok()) << expected.status();
  options.recompute = true;
  const absl::StatusOr<Report> report = Train(options, dataset);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->weights_sha256, expected->weights_sha256);
  EXPECT_EQ(report->loss, expected->loss);
  EXPECT_EQ(report->val_loss, expected->val_loss);
  EXPECT_LT(report->activation_bytes, expected->activation_bytes);
  EXPECT_NE(report->plan_fingerprint, expected->plan_fingerprint);
}

class RecomputeStageTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(RecomputeStageTest, BitsAreThoseOfActivationsThatAreKept) {
  Options options = SmallRun();
  options.zero = GetParam();
  ExpectBitsOfNoRecomputation(options);
}

TEST_P(RecomputeStageTest, AlsoOverMicroBatchesOfSixteenBits) {
  Options options = SmallRun();
  options.zero = GetParam();
  options.micro_batches = 2;
  options.accumulate_bytes = 1;
  options.dtype = options.reduce_dtype = "bf16";
  ExpectBitsOfNoRecomputation(options);
}

TEST_P(RecomputeStageTest, AlsoOfSequencesThatRanksShare) {
  Options options = SmallRun();
  options.zero = GetParam();
  options.sp = 2;
  options.sp_chunks = 2;
  options.micro_batches = 2;
  ExpectBitsOfNoRecomputation(options);
}

INSTANTIATE_TEST_SUITE_P(ZeroStages, RecomputeStageTest,
                         ::testing::Values(0, 1, 2, 3));

TEST(RecomputeTest, BitsSurviveALiveCapUnderWhichBlocksAreGatheredAgain) {
  Options options = SmallRun();
  options.zero = 3;
  options.max_live_bytes = 700 << 10;
  ExpectBitsOfNoRecomputation(options);
}

TEST(RecomputeTest, BitsSurviveExchangesThatBlockAndUnevenHeads) {
  Options options = SmallRun();
  options.ranks = 3;
  options.sp = 3;
  options.batch = 2;
  options.seq = 24;
  options.sp_blocking = true;
  ExpectBitsOfNoRecomputation(options);
}

int64_t ActivationBytes(int64_t layers, const ActivationOptions& options) {
  const GptConfig config = {
      .context = 32, .layers = layers, .heads = 4, .channels = 64};
  const auto gpt = Gpt::Create(config, /*batch=*/2, /*seq=*/32, options);
  EXPECT_TRUE(gpt.ok()) << gpt.status();
  return gpt.ok() ? (*gpt)->activation_bytes() : 0;
}

TEST(RecomputeMemoryTest, ALayerMoreTakesWhatEntersItAndNoMore) {
  for (const int64_t sp : {1, 2}) {
    const ActivationOptions options = {.shard = {.ranks = sp, .rank = sp - 1},
                                       .recompute = true};
    const int64_t residual = 2 * 32 / sp * 64 * int64_t{sizeof(float)};
    EXPECT_EQ(ActivationBytes(9, options) - ActivationBytes(2, options),
              7 * residual)
        << "sp " << sp;
  }
}

TEST(RecomputeMemoryTest, OneLayerHasNothingToShare) {
  EXPECT_EQ(ActivationBytes(1, {.recompute = true}), ActivationBytes(1, {}));
}

}  // namespace
}  // namespace commsched::trainer

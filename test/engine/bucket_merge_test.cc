// Training with buckets that are merged by predicted cost, and without.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "commsched/step_plan.h"
#include "test/engine/pass_lists.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

// Ranks, stage.
class MergedBucketsTest
    : public ::testing::TestWithParam<std::tuple<int32_t, uint32_t>> {
 protected:
  MergedBucketsTest() {
    run_.ranks = std::get<0>(GetParam());
    run_.options.zero_stage = std::get<1>(GetParam());
    run_.options.bucket_bytes = 1024;
    // So long that a step is shorter with fewer collectives.
    profile_.link_latency_ns = 1'000'000;
    profile_.link_bytes_per_s = 10e9;
    run_.options.profile = &profile_;
  }

  // The weights of all ranks, and in how many buckets they were.
  void Expect(uint32_t bucket_merge, ToyResult* out_result) {
    run_.options.bucket_merge = bucket_merge;
    *out_result = RunToy(run_);
    ASSERT_EQ(out_result->error, "");
  }

  // The same bits, in fewer buckets.
  void ExpectTheSameWeights() {
    ToyResult apart, merged;
    Expect(COMMSCHED_BUCKET_MERGE_OFF, &apart);
    Expect(COMMSCHED_BUCKET_MERGE_ON, &merged);
    if (HasFatalFailure()) return;
    EXPECT_EQ(apart.info.given_buckets, 0u);
    EXPECT_EQ(merged.info.given_buckets, apart.info.num_buckets);
    EXPECT_LT(merged.info.num_buckets, apart.info.num_buckets);
    EXPECT_LT(merged.info.step_ns, merged.info.given_step_ns);
    EXPECT_EQ(merged.norm, apart.norm);
    for (size_t rank = 0; rank < merged.weights.size(); ++rank) {
      EXPECT_TRUE(SameBits(merged.weights[rank], apart.weights[rank]));
    }
  }

  ToyRun run_;
  commsched_cost_profile_t profile_ = commsched_cost_profile_init();
};

TEST_P(MergedBucketsTest, HaveTheBitsOfBucketsApart) { ExpectTheSameWeights(); }

// All buckets accumulate whole, or none does.
TEST_P(MergedBucketsTest, HaveThemOverMicroBatches) {
  run_.options.micro_batches = 3;
  for (const uint64_t accumulate_bytes : {0, 1}) {
    SCOPED_TRACE(accumulate_bytes);
    run_.options.accumulate_bytes = accumulate_bytes;
    ExpectTheSameWeights();
  }
}

// Backwards of several micro-batches come between each other.
TEST_P(MergedBucketsTest, HaveThemInAListOfPasses) {
  run_.options.micro_batches = kListWindow;
  run_.options.accumulate_bytes = 1;
  run_.passes = ModuleByModule();
  ExpectTheSameWeights();
}

TEST_P(MergedBucketsTest, HaveThemInSixteenBits) {
  run_.options.micro_batches = 2;
  run_.options.parameter_dtype = COMMSCHED_BF16;
  run_.options.reduce_dtype = COMMSCHED_BF16;
  ExpectTheSameWeights();
}

INSTANTIATE_TEST_SUITE_P(RanksAndStages, MergedBucketsTest,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Range(0u, 4u)));

}  // namespace
}  // namespace commsched::engine

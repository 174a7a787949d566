#include "engine/step_plan/accumulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/step_plan/layout.h"

namespace commsched::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Buckets of so many bytes.
Layout BucketsOf(const std::vector<uint64_t>& bytes) {
  Layout layout;
  for (uint64_t each : bytes) {
    layout.buckets.emplace_back().count = each / sizeof(float);
  }
  return layout;
}

// By bucket: whether it accumulates.
std::vector<bool> Accumulating(const AccumulationCosts& costs, Layout layout) {
  ChooseAccumulation(costs, &layout);
  std::vector<bool> whole;
  for (const Bucket& bucket : layout.buckets) {
    whole.push_back(!bucket.reduced_at_once);
  }
  return whole;
}

TEST(ChooseAccumulationTest, WithoutALimitAllAccumulate) {
  EXPECT_THAT(Accumulating({.budget_bytes = 0}, BucketsOf({400, 800})),
              Each(true));
}

TEST(ChooseAccumulationTest, NoneDoesIfTheSmallestDoesNotFit) {
  EXPECT_THAT(Accumulating({.budget_bytes = 399}, BucketsOf({400, 800})),
              Each(false));
}

TEST(ChooseAccumulationTest, AllDoIfAllFit) {
  EXPECT_THAT(Accumulating({.budget_bytes = 1200}, BucketsOf({400, 800})),
              Each(true));
}

TEST(ChooseAccumulationTest, OnAFastLinkBytesCount) {
  EXPECT_THAT(Accumulating({.budget_bytes = 2000, .bytes_per_s = 1e9},
                           BucketsOf({400, 1000, 1000, 1000})),
              ElementsAre(false, true, true, false));
}

TEST(ChooseAccumulationTest, TheRestOfTheBudgetGoesToSmallerBuckets) {
  EXPECT_THAT(Accumulating({.budget_bytes = 1500, .bytes_per_s = 1e9},
                           BucketsOf({400, 800, 1000, 80})),
              ElementsAre(true, false, true, true));
}

TEST(ChooseAccumulationTest, WithALatencyTheNumberOfReductionsCounts) {
  const Layout layout = BucketsOf({400, 400, 1000, 400});
  AccumulationCosts costs = {.budget_bytes = 1200, .bytes_per_s = 1e9};
  costs.latency_ns = 10;
  EXPECT_THAT(Accumulating(costs, layout),
              ElementsAre(true, true, false, true));
  // The same, but the three have less to send than the one.
  costs.budget_bytes = 1000;
  EXPECT_THAT(Accumulating(costs, layout),
              ElementsAre(false, false, true, false));
  costs.latency_ns = 10'000;
  EXPECT_THAT(Accumulating(costs, layout),
              ElementsAre(false, true, false, true));
}

TEST(ChooseAccumulationTest, NeverExceedsTheBudgetNorLeavesRoomForABucket) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> bytes(1 + random() % 20);
    uint64_t all = 0;
    for (uint64_t& each : bytes) all += each = 4 * (1 + random() % 5000);
    AccumulationCosts costs;
    costs.budget_bytes = 1 + random() % all;
    costs.bytes_per_s = 1e8;
    costs.latency_ns = static_cast<int64_t>(random() % 100'000);
    const std::vector<bool> whole = Accumulating(costs, BucketsOf(bytes));
    uint64_t left = costs.budget_bytes;
    for (size_t b = 0; b < bytes.size(); ++b) {
      if (!whole[b]) continue;
      ASSERT_LE(bytes[b], left) << "round " << round;
      left -= bytes[b];
    }
    for (size_t b = 0; b < bytes.size(); ++b) {
      if (!whole[b]) {
        ASSERT_GT(bytes[b], left) << "round " << round;
      }
    }
  }
}

TEST(ChooseAccumulationTest, AnEarlierChoiceIsForgotten) {
  Layout layout = BucketsOf({400, 800});
  ChooseAccumulation({.budget_bytes = 400}, &layout);
  EXPECT_TRUE(layout.buckets[1].reduced_at_once);
  ChooseAccumulation({.budget_bytes = 0}, &layout);
  EXPECT_FALSE(layout.buckets[1].reduced_at_once);
}

TEST(AccumulationTest, FrozenBucketsHaveNothingToAddUp) {
  for (const uint64_t budget : {0, 1, 1 << 20}) {
    Layout layout = BucketsOf({1000, 2000});
    layout.buckets[1].frozen = true;
    AccumulationCosts costs;
    costs.budget_bytes = budget;
    costs.element_bytes = 4;
    costs.sent_element_bytes = 4;
    costs.bytes_per_s = 1e9;
    ChooseAccumulation(costs, &layout);
    EXPECT_EQ(layout.buckets[0].reduced_at_once, budget == 1);
    EXPECT_FALSE(layout.buckets[1].reduced_at_once);
  }
}

}  // namespace
}  // namespace commsched::engine

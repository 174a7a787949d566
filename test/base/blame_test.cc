#include "base/blame.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/property.h"

namespace commsched {
namespace {

TEST(BusyTimeTest, MergesWhatOverlapsOrTouches) {
  const BusyTime busy({{10, 20}, {0, 5}, {5, 7}, {15, 30}, {40, 40}, {9, 8}});
  ASSERT_EQ(busy.intervals().size(), 2u);
  EXPECT_EQ(busy.intervals()[0].end_ns, 7);
  EXPECT_EQ(busy.intervals()[1].begin_ns, 10);
  EXPECT_EQ(busy.total_ns(), 7 + 20);
  EXPECT_EQ(BusyTime().Covered({0, 100}), 0);
}

TEST(BusyTimeTest, CoversWhatBothHave) {
  const BusyTime busy({{0, 10}, {20, 30}});
  EXPECT_EQ(busy.Covered({5, 25}), 10);
  EXPECT_EQ(busy.Covered({-5, 40}), 20);
  EXPECT_EQ(busy.Covered({10, 20}), 0);
  EXPECT_EQ(busy.Covered({25, 25}), 0);
}

// Against a count of single nanoseconds, for every begin.
TEST(BusyTimePropertyTest, AgreesWithCounting) {
  for (int i = 0; i < test::PropertyCases(300); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    std::vector<int> second(300, 0);
    std::vector<Interval> intervals;
    for (uint64_t n = random() % 12; n > 0; --n) {
      const int64_t begin = static_cast<int64_t>(random() % 250);
      const int64_t end = begin + static_cast<int64_t>(random() % 40);
      intervals.push_back({begin, end});
      std::fill(second.begin() + begin, second.begin() + end, 1);
    }
    const BusyTime busy(intervals);
    const int64_t length = static_cast<int64_t>(random() % 60);
    const int64_t earliest = static_cast<int64_t>(random() % 100);
    const int64_t latest = earliest + static_cast<int64_t>(random() % 100);
    int64_t most = 0;
    for (int64_t begin = earliest; begin <= latest; ++begin) {
      const int64_t covered = std::count(second.begin() + begin,
                                         second.begin() + begin + length, 1);
      ASSERT_EQ(busy.Covered({begin, begin + length}), covered);
      most = std::max(most, covered);
    }
    ASSERT_EQ(busy.MostCovered(length, earliest, latest), most);
  }
}

// Compute in [0, 100); a transfer of 50 at 200 that could have begun earlier.
HeldTransfer HeldAt(int64_t begin_ns) {
  return {.length_ns = 50,
          .without_straggler_ns = begin_ns,
          .without_cap_ns = begin_ns,
          .without_order_ns = begin_ns,
          .without_queue_ns = begin_ns,
          .without_dependency_ns = begin_ns};
}

TEST(ShareOutTest, BlamesTheCauseWithoutWhichItWouldBeHidden) {
  const BusyTime compute({{0, 100}});
  HeldTransfer transfer = HeldAt(200);
  EXPECT_EQ(ShareOut(50, transfer, compute), (Blame{.link_ns = 50}));
  transfer.without_dependency_ns = 0;
  EXPECT_EQ(ShareOut(50, transfer, compute), (Blame{.dependency_ns = 50}));
  transfer.without_queue_ns = 20;
  EXPECT_EQ(ShareOut(50, transfer, compute), (Blame{.link_ns = 50}));
  transfer.without_order_ns = 20;
  EXPECT_EQ(ShareOut(50, transfer, compute), (Blame{.order_ns = 50}));
  transfer.without_cap_ns = 20;
  EXPECT_EQ(ShareOut(50, transfer, compute), (Blame{.cap_ns = 50}));
  transfer.without_straggler_ns = 20;
  EXPECT_EQ(ShareOut(50, transfer, compute), (Blame{.straggler_ns = 50}));
}

TEST(ShareOutTest, ATransferLongerThanComputeIsTheLinksForTheRest) {
  HeldTransfer transfer = HeldAt(100);
  transfer.length_ns = 130;
  transfer.without_dependency_ns = -100;
  EXPECT_EQ(ShareOut(130, transfer, BusyTime({{0, 100}})),
            (Blame{.dependency_ns = 100, .link_ns = 30}));
}

TEST(ShareOutTest, ACauseThatHidMoreThanItExposedGetsNothing) {
  HeldTransfer transfer = HeldAt(80);  // 30 exposed
  transfer.without_cap_ns = -40;       // would have been 40
  transfer.without_order_ns = transfer.without_queue_ns =
      transfer.without_dependency_ns = -40;
  EXPECT_EQ(ShareOut(30, transfer, BusyTime({{0, 100}})),
            (Blame{.link_ns = 30}));
}

}  // namespace
}  // namespace commsched

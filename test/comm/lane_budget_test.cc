#include "comm/lane_budget.h"

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(LaneBudgetTest, ADeviceHasACtaPerMultiprocessorForFourLanes) {
  const LaneBudget budget = LaneBudget::Of(132, "");
  EXPECT_EQ(budget.Share(1), 33u);
  EXPECT_EQ(budget.NumLanes(1), 4u);
}

TEST(LaneBudgetTest, ADeviceThatDoesNotSayIsTakenForALargeOne) {
  EXPECT_EQ(LaneBudget::Of(0, "").total, LaneBudget::kMultiprocessors);
}

TEST(LaneBudgetTest, TheConfigurationSaysTotalLanesAndLeast) {
  const LaneBudget budget =
      LaneBudget::Of(132, "cga=2,max_ctas=24,lanes=3,min_ctas=2");
  EXPECT_EQ(budget.total, 24u);
  EXPECT_EQ(budget.least, 2u);
  EXPECT_EQ(budget.Share(1), 8u);
  EXPECT_EQ(budget.NumLanes(1), 3u);
}

TEST(LaneBudgetTest, APlanWithMoreLanesHasLessOnEach) {
  const LaneBudget budget = {.total = 24, .num_lanes = 3};
  EXPECT_EQ(budget.Share(6), 4u);
  EXPECT_EQ(budget.NumLanes(6), 6u);
}

TEST(LaneBudgetTest, ALaneHasNoMoreThanACommunicatorMayHave) {
  const LaneBudget budget = {.total = 132, .num_lanes = 1};
  EXPECT_EQ(budget.Share(1), LaneBudget::kMostCtas);
  EXPECT_EQ(budget.NumLanes(1), 2u);
}

// The backend refuses what is too little for the lanes of a plan.
TEST(LaneBudgetTest, ALaneHasWhatIsTheLeast) {
  const LaneBudget budget = {.total = 16, .num_lanes = 4, .least = 8};
  EXPECT_EQ(budget.Share(1), 8u);
  EXPECT_EQ(budget.NumLanes(1), 2u);
  EXPECT_EQ(budget.NumLanes(4), 4u);
}

}  // namespace
}  // namespace commsched

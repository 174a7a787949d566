#include "comm/polling.h"

#include "gtest/gtest.h"

namespace commsched {
namespace {

constexpr int64_t kLossNs = 2 * Polling::kLossNs;

// Loses the core at `now_ns`. Returns when the pause is over.
int64_t Lose(Polling* polling, int64_t now_ns, int64_t pauses) {
  const int64_t back_ns = now_ns + kLossNs;
  const int64_t again_ns = back_ns + pauses * kLossNs;
  polling->OnYield(now_ns, back_ns);
  EXPECT_FALSE(polling->IsWorthwhile(back_ns));
  EXPECT_FALSE(polling->IsWorthwhile(again_ns - 1));
  EXPECT_TRUE(polling->IsWorthwhile(again_ns));
  return again_ns;
}

TEST(PollingTest, IsWorthwhileAsLongAsTheCoreComesBackSoon) {
  Polling polling;
  EXPECT_TRUE(polling.IsWorthwhile(0));
  polling.OnYield(0, Polling::kLossNs - 1);
  EXPECT_TRUE(polling.IsWorthwhile(Polling::kLossNs));
}

TEST(PollingTest, PausesDoubleFromLossToLoss) {
  Polling polling;
  int64_t now_ns = 0;
  for (const int64_t pauses : {1, 2, 4, 8, 16, 32, 32}) {
    now_ns = Lose(&polling, now_ns, pauses);
  }
}

TEST(PollingTest, ALossLongAfterTheLastOneIsTheFirst) {
  Polling polling;
  const int64_t now_ns = Lose(&polling, Lose(&polling, 0, 1), 2);
  Lose(&polling, now_ns + Polling::kMostPauses * kLossNs, 1);
}

TEST(PollingTest, WhereRanksAreManyTheCoreMayComeBackLater) {
  Polling polling(3 * Polling::kLossNs);
  polling.OnYield(0, kLossNs);
  EXPECT_TRUE(polling.IsWorthwhile(kLossNs));
  polling.OnYield(0, 3 * Polling::kLossNs);
  EXPECT_FALSE(polling.IsWorthwhile(3 * Polling::kLossNs));
}

TEST(PollingTest, ACrowdIsMoreThanAFewRanksPerCore) {
  EXPECT_EQ(CrowdOf(0, 2), 1);
  EXPECT_EQ(CrowdOf(16, 2), 1);
  EXPECT_EQ(CrowdOf(64, 2), 4);
  EXPECT_EQ(CrowdOf(64, 16), 1);
}

TEST(PollTimeTest, WhatIsGivenAwayDoesNotCount) {
  constexpr int64_t kOwnNs = PollTime::kMostNs / 4;
  PollTime polled(0);
  int64_t now_ns = 0;
  for (int i = 0; i < 3; ++i) {
    now_ns += kOwnNs;
    EXPECT_FALSE(polled.IsOver(now_ns));
    const int64_t back_ns = now_ns + Polling::kLossNs - 1;
    polled.OnYield(now_ns, back_ns);
    now_ns = back_ns;
  }
  EXPECT_FALSE(polled.IsOver(now_ns + kOwnNs - 1));
  EXPECT_TRUE(polled.IsOver(now_ns + kOwnNs));
}

TEST(PollTimeTest, IsOverWhereTheCoreComesBackLate) {
  PollTime polled(0);
  polled.OnYield(1, 1 + Polling::kLossNs);
  EXPECT_TRUE(polled.IsOver(1 + Polling::kLossNs));
}

}  // namespace
}  // namespace commsched

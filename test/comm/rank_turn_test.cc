#include "comm/rank_turn.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "test/support/await.h"

namespace commsched {
namespace {

class RankTurnTest : public testing::Test {
 protected:
  Parker sleeper_, last_;
  RankTurn turn_{&sleeper_, &last_};
};

TEST_F(RankTurnTest, OneHasItAtATime) {
  EXPECT_TRUE(turn_.TryTake());
  EXPECT_FALSE(turn_.TryTake());
  turn_.Give();
  EXPECT_TRUE(turn_.TryTake());
}

TEST_F(RankTurnTest, WhileNobodyWaitsNobodyIsWoken) {
  ASSERT_TRUE(turn_.TryTake());
  turn_.Give();
  EXPECT_FALSE(sleeper_.ParkUntil(0));
  EXPECT_FALSE(last_.ParkUntil(0));
}

TEST_F(RankTurnTest, WaitingEndsAtTheDeadline) {
  ASSERT_TRUE(turn_.TryTake());
  EXPECT_FALSE(turn_.TakeBy(SystemClock::Get().NowNs() + 1'000'000));
  EXPECT_FALSE(turn_.IsWanted());
  turn_.Give();
  EXPECT_TRUE(turn_.TakeBy(0));
}

TEST_F(RankTurnTest, AHolderWhoSleepsIsWokenByWhoWaits) {
  ASSERT_TRUE(turn_.TryTake());
  std::thread other([&] {
    EXPECT_TRUE(turn_.TakeBy(kNoDeadlineNs));
    turn_.Give();
  });
  sleeper_.Park();
  EXPECT_TRUE(turn_.IsWanted());
  turn_.Give();
  other.join();
}

TEST_F(RankTurnTest, TheLastIsWokenWhenTheTurnIsGiven) {
  ASSERT_TRUE(turn_.TryTake());
  std::thread last([&] {
    while (!turn_.TakeLast()) {
    }
    turn_.Give();
  });
  turn_.Give();
  last.join();
}

TEST_F(RankTurnTest, TheLastIsWokenWhenWhoWaitsGivesUp) {
  ASSERT_TRUE(turn_.TryTake());
  std::thread other([&] {
    EXPECT_FALSE(turn_.TakeBy(SystemClock::Get().NowNs() + 1'000'000));
  });
  std::thread last([&] {
    while (!turn_.TakeLast()) {
    }
    turn_.Give();
  });
  other.join();
  turn_.Give();
  last.join();
}

TEST_F(RankTurnTest, ATokenEndsTheSleepOfTheLast) {
  ASSERT_TRUE(turn_.TryTake());
  last_.Unpark();
  EXPECT_FALSE(turn_.TakeLast());
}

TEST_F(RankTurnTest, AllSortsOfTakersGetIt) {
  int num_taken = 0;  // Guarded by the turn.
  std::atomic<bool> is_over{false};
  std::vector<std::thread> takers;
  for (int t = 0; t < 3; ++t) {
    takers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(turn_.TakeBy(kNoDeadlineNs));
        ++num_taken;
        turn_.Give();
        if (!turn_.TryTake()) continue;
        turn_.Give();
      }
    });
  }
  std::thread last([&] {
    while (!is_over.load()) {
      if (turn_.TakeLast()) turn_.Give();
    }
  });
  for (std::thread& taker : takers) taker.join();
  is_over.store(true);
  last_.Unpark();
  last.join();
  EXPECT_EQ(num_taken, 3000);
}

}  // namespace
}  // namespace commsched

#include "comm/turn.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "test/support/await.h"

namespace commsched {
namespace {

TEST(TurnTest, OneHasItAtATime) {
  Turn turn;
  EXPECT_TRUE(turn.TryTake());
  EXPECT_FALSE(turn.TryTake());
  EXPECT_FALSE(turn.Give());
  EXPECT_TRUE(turn.TryTake());
}

TEST(TurnTest, WaitingEndsAtTheDeadline) {
  Turn turn;
  ASSERT_TRUE(turn.TryTake());
  EXPECT_FALSE(turn.TakeBy(SystemClock::Get().NowNs() + 1'000'000));
  EXPECT_FALSE(turn.IsWanted());
  EXPECT_FALSE(turn.Give());
  EXPECT_TRUE(turn.TakeBy(0));
}

TEST(TurnTest, WhoWaitsHasItOnceItIsGiven) {
  Turn turn;
  ASSERT_TRUE(turn.TryTake());
  std::atomic<bool> has_it{false};
  std::thread other([&] {
    turn.Take();
    const Turn::Given given(&turn);
    has_it.store(true);
  });
  EXPECT_TRUE(test::Await([&] { return turn.IsWanted(); }));
  EXPECT_FALSE(has_it.load());
  // Not past those who wait.
  EXPECT_FALSE(turn.TryTake());
  EXPECT_TRUE(turn.Give());
  other.join();
  EXPECT_TRUE(has_it.load());
  EXPECT_TRUE(turn.TryTake());
}

TEST(TurnTest, TheHolderGetsATokenWhenSomebodyBeginsToWait) {
  Turn turn;
  Parker parker;
  ASSERT_TRUE(turn.TryTake());
  std::thread other([&] {
    EXPECT_TRUE(turn.TakeBy(kNoDeadlineNs, &parker));
    turn.Give();
  });
  parker.Park();
  turn.Give();
  other.join();
}

// I6: a lane that one session uses costs it no lock.
TEST(TurnTest, ATurnThatNobodyElseWantsTakesNoLock) {
  Turn turn;
  const uint64_t waits = GlobalBlockingCounters().condition_waits.load();
  const uint64_t locks = GlobalBlockingCounters().contended_locks.load();
  for (int i = 0; i < 1000; ++i) {
    turn.Take();
    const Turn::Given given(&turn);
  }
  EXPECT_EQ(GlobalBlockingCounters().condition_waits.load(), waits);
  EXPECT_EQ(GlobalBlockingCounters().contended_locks.load(), locks);
}

TEST(TurnTest, WhatIsDoneWithinTurnsIsDoneByOneAtATime) {
  Turn turn;
  int num = 0;  // Guarded by the turn.
  constexpr int kThreads = 4;
  constexpr int kTurns = 5000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int t = 0; t < kTurns; ++t) {
        turn.Take();
        const Turn::Given given(&turn);
        ++num;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num, kThreads * kTurns);
}

}  // namespace
}  // namespace commsched

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

// The last thread: it takes the turn whenever it gets it.
class Last {
 public:
  Last(RankTurn* turn, Parker* parker)
      : parker_(parker), thread_([this, turn] {
          while (!is_over_.load()) {
            if (!turn->TakeLast()) continue;
            num_taken_.fetch_add(1);
            turn->Give();
            std::this_thread::yield();
          }
        }) {}
  ~Last() {
    is_over_.store(true);
    parker_->Unpark();
    thread_.join();
  }
  Last(const Last&) = delete;
  Last& operator=(const Last&) = delete;

  int num_taken() const { return num_taken_.load(); }
  // Whether it takes the turn again without being woken by the test.
  bool TakesMoreThan(int num) const {
    return test::Await([&] { return num_taken() > num; });
  }

 private:
  Parker* const parker_;
  std::atomic<bool> is_over_{false};
  std::atomic<int> num_taken_{0};
  std::thread thread_;
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
  const Last last(&turn_, &last_);
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(turn_.TakeBy(kNoDeadlineNs));
    const int num_taken = last.num_taken();
    std::this_thread::yield();  // It sleeps, or is about to.
    turn_.Give();
    ASSERT_TRUE(last.TakesMoreThan(num_taken));
  }
}

TEST_F(RankTurnTest, TheLastIsWokenWhenWhoWaitsGivesUp) {
  constexpr int kRounds = 1000;
  const Last last(&turn_, &last_);
  std::atomic<int> num_begun{0};
  std::atomic<int> num_given_up{0};
  std::thread other([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (num_begun.load() < i) std::this_thread::yield();
      if (turn_.TakeBy(0)) turn_.Give();
      num_given_up.store(i);
    }
  });
  // The turn is given at about the time at which the other one gives up.
  for (int i = 1; i <= kRounds; ++i) {
    EXPECT_TRUE(turn_.TakeBy(kNoDeadlineNs));
    const int num_taken = last.num_taken();
    std::this_thread::yield();
    num_begun.store(i);
    for (int looks = i % 100; looks > 0 && num_given_up.load() < i; --looks) {
    }
    turn_.Give();
    EXPECT_TRUE(test::Await([&] { return num_given_up.load() == i; }));
    EXPECT_TRUE(last.TakesMoreThan(num_taken));
    if (HasFailure()) break;
  }
  num_begun.store(kRounds);
  other.join();
}

TEST_F(RankTurnTest, ATokenEndsTheSleepOfTheLast) {
  ASSERT_TRUE(turn_.TryTake());
  last_.Unpark();
  EXPECT_FALSE(turn_.TakeLast());
}

TEST_F(RankTurnTest, AllSortsOfTakersGetIt) {
  int num_taken = 0;  // Guarded by the turn.
  const Last last(&turn_, &last_);
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
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(num_taken, 3000);
  EXPECT_TRUE(last.TakesMoreThan(last.num_taken()));
}

}  // namespace
}  // namespace commsched

#include "base/parker.h"

#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

int64_t AfterMs(int64_t ms) {
  return SystemClock::Get().NowNs() + ms * 1'000'000;
}

TEST(ParkerTest, TokenLeftBeforeParkIsTakenAtOnce) {
  Parker parker;
  parker.Unpark();
  EXPECT_TRUE(parker.ParkUntil(0));
}

TEST(ParkerTest, ManyTokensCountAsOne) {
  Parker parker;
  parker.Unpark();
  parker.Unpark();
  EXPECT_TRUE(parker.ParkUntil(0));
  EXPECT_FALSE(parker.ParkUntil(0));
}

TEST(ParkerTest, WithoutATokenItGivesUpAtTheDeadlineAndNotBefore) {
  Parker parker;
  const int64_t deadline_ns = AfterMs(5);
  EXPECT_FALSE(parker.ParkUntil(deadline_ns));
  EXPECT_GE(SystemClock::Get().NowNs(), deadline_ns);
}

TEST(ParkerTest, AfterATimeoutItWorksAsBefore) {
  Parker parker;
  EXPECT_FALSE(parker.ParkUntil(AfterMs(1)));
  parker.Unpark();
  EXPECT_TRUE(parker.ParkUntil(0));
  EXPECT_FALSE(parker.ParkUntil(AfterMs(1)));
}

// Two threads hand a plain counter to and fro. A lost wake-up hangs the test;
// a missing order between Unpark and Park is a race for the thread sanitizer.
TEST(ParkerTest, PingPongLosesNoWakeUpAndOrdersMemory) {
  constexpr int kRounds = 20000;
  Parker ping;
  Parker pong;
  int counter = 0;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      ping.Park();
      ++counter;
      pong.Unpark();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    ++counter;
    ping.Unpark();
    pong.Park();
  }
  other.join();
  EXPECT_EQ(counter, 2 * kRounds);
}

// Several threads post work without waiting; the owner must come to see all of
// it, though tokens merge.
TEST(ParkerTest, OwnerSeesEverythingPostedBeforeTheLastToken) {
  constexpr int kPosters = 3;
  constexpr int kPosts = 5000;
  Parker parker;
  std::atomic<int> posted{0};
  std::vector<std::thread> posters;
  for (int t = 0; t < kPosters; ++t) {
    posters.emplace_back([&] {
      for (int i = 0; i < kPosts; ++i) {
        posted.fetch_add(1, std::memory_order_relaxed);
        parker.Unpark();
      }
    });
  }
  while (posted.load(std::memory_order_relaxed) < kPosters * kPosts) {
    parker.Park();
  }
  for (std::thread& poster : posters) poster.join();
  EXPECT_EQ(posted.load(), kPosters * kPosts);
}

// Deadlines close to the wake-up exercise the last-moment token.
TEST(ParkerTest, RacingDeadlineNeitherLosesNorDoublesTheToken) {
  constexpr int kRounds = 3000;
  Parker parker;
  Parker resume;
  std::thread waker([&] {
    for (int i = 0; i < kRounds; ++i) {
      resume.Park();
      parker.Unpark();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    resume.Unpark();
    const int64_t soon_ns = SystemClock::Get().NowNs() + 20'000 + i % 40'000;
    if (!parker.ParkUntil(soon_ns)) parker.Park();
    ASSERT_FALSE(parker.ParkUntil(0)) << "one token was taken twice";
  }
  waker.join();
}

// A sleeper that counts, and sleeps as a test can: not at all.
struct CountingSleeper {
  int sleeps = 0;
  int wakes = 0;
  Parker* unparked_within = nullptr;

  Parker::Sleeper Table() {
    return {
        .user = this,
        .sleep =
            [](void* user, int64_t) {
              auto* self = static_cast<CountingSleeper*>(user);
              ++self->sleeps;
              if (self->unparked_within == nullptr) return;
              self->unparked_within->Unpark();
            },
        .wake =
            [](void* user) { ++static_cast<CountingSleeper*>(user)->wakes; }};
  }
};

TEST(ParkerSleeperTest, ATokenThatIsThereNeedsNoSleep) {
  CountingSleeper sleeper;
  Parker parker;
  parker.SetSleeper(sleeper.Table());
  parker.Unpark();
  EXPECT_TRUE(parker.ParkUntil(kNoDeadlineNs));
  EXPECT_EQ(sleeper.sleeps, 0);
  EXPECT_EQ(sleeper.wakes, 0);
}

TEST(ParkerSleeperTest, ASleepThatEndsForNoReasonGivesNoToken) {
  CountingSleeper sleeper;
  Parker parker;
  parker.SetSleeper(sleeper.Table());
  EXPECT_FALSE(parker.ParkUntil(kNoDeadlineNs));
  EXPECT_EQ(sleeper.sleeps, 1);
  parker.Unpark();  // Nobody sleeps any more.
  EXPECT_EQ(sleeper.wakes, 0);
  EXPECT_TRUE(parker.ParkUntil(0));
}

TEST(ParkerSleeperTest, WhoSleepsIsWoken) {
  CountingSleeper sleeper;
  Parker parker;
  parker.SetSleeper(sleeper.Table());
  sleeper.unparked_within = &parker;
  EXPECT_TRUE(parker.ParkUntil(kNoDeadlineNs));
  EXPECT_EQ(sleeper.wakes, 1);
}

}  // namespace
}  // namespace commsched

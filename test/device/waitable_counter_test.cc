#include "device/waitable_counter.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/parker.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(WaitableCounterTest, StartsAtZero) {
  WaitableCounter counter;
  EXPECT_TRUE(counter.Reached(0));
  EXPECT_FALSE(counter.Reached(1));
}

TEST(WaitableCounterTest, ReachingAValueReachesAllBelow) {
  WaitableCounter counter;
  counter.AdvanceTo(5);
  EXPECT_TRUE(counter.Reached(4));
  EXPECT_TRUE(counter.Reached(5));
  EXPECT_FALSE(counter.Reached(6));
}

TEST(WaitableCounterTest, NeverGoesBack) {
  WaitableCounter counter;
  counter.AdvanceTo(5);
  counter.AdvanceTo(3);
  EXPECT_TRUE(counter.Reached(5));
}

TEST(WaitableCounterTest, WaitForReturnsAtOnceIfReached) {
  WaitableCounter counter;
  counter.AdvanceTo(2);
  counter.WaitFor(2);
}

TEST(WaitableCounterTest, AWaitGivesUpAtItsDeadline) {
  WaitableCounter counter;
  const int64_t soon_ns = SystemClock::Get().NowNs() + 1'000'000;
  EXPECT_FALSE(counter.WaitUntil(1, soon_ns));
  EXPECT_GE(SystemClock::Get().NowNs(), soon_ns);
  counter.AdvanceTo(1);
  EXPECT_TRUE(counter.WaitUntil(1, /*deadline_ns=*/0));
}

TEST(WaitableCounterTest, WritesBeforeAdvanceAreSeenAfterWaiting) {
  for (int round = 0; round < 200; ++round) {
    WaitableCounter counter;
    int payload = 0;  // Not atomic: the thread sanitizer checks the ordering.
    std::thread writer([&] {
      payload = 42;
      counter.AdvanceTo(1);
    });
    counter.WaitFor(1);
    EXPECT_EQ(payload, 42);
    writer.join();
  }
}

TEST(WaitableCounterTest, ManySleepersWakeEachAtItsValue) {
  WaitableCounter counter;
  std::atomic<int> woken{0};
  std::vector<std::thread> sleepers;
  for (uint64_t value = 1; value <= 8; ++value) {
    sleepers.emplace_back([&, value] {
      counter.WaitFor(value);
      EXPECT_TRUE(counter.Reached(value));
      woken.fetch_add(1);
    });
  }
  for (uint64_t value = 1; value <= 8; ++value) {
    counter.AdvanceTo(value);
    std::this_thread::yield();
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(woken.load(), 8);
}

TEST(WaitableCounterTest, ConcurrentAdvancesKeepTheGreatest) {
  WaitableCounter counter;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 1000; ++i) counter.AdvanceTo(i * 4 + t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(counter.Reached(3999));
  EXPECT_FALSE(counter.Reached(4000));
}

TEST(WaitableCounterTest, ListenersAreUnparkedOnGrowthOnly) {
  Parker parker;
  WaitableCounter counter;
  ASSERT_TRUE(counter.AddListener(&parker));
  EXPECT_FALSE(parker.ParkUntil(0));
  counter.AdvanceTo(1);
  EXPECT_TRUE(parker.ParkUntil(0));
  counter.AdvanceTo(1);
  EXPECT_FALSE(parker.ParkUntil(0));
}

TEST(WaitableCounterTest, AFifthListenerIsRefused) {
  Parker parkers[WaitableCounter::kMaxListeners + 1];
  WaitableCounter counter;
  for (int i = 0; i < WaitableCounter::kMaxListeners; ++i) {
    EXPECT_TRUE(counter.AddListener(&parkers[i]));
  }
  EXPECT_FALSE(counter.AddListener(&parkers[WaitableCounter::kMaxListeners]));
}

// The thread that raises the counter may still be inside AdvanceTo() when a
// waiter has seen the value and destroys the counter.
TEST(WaitableCounterTest, MayBeDestroyedAsSoonAsTheValueIsSeen) {
  for (int round = 0; round < 500; ++round) {
    auto counter = std::make_unique<WaitableCounter>();
    WaitableCounter* raw = counter.get();
    std::thread raiser([raw] { raw->AdvanceTo(1); });
    counter->WaitFor(1);
    counter.reset();
    raiser.join();
  }
}

}  // namespace
}  // namespace commsched

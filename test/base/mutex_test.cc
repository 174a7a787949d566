#include "base/mutex.h"

#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "test/support/await.h"

namespace commsched {
namespace {

TEST(MutexTest, LockExcludesOtherThreads) {
  Mutex mu;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        MutexLock lock(&mu);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 40000);
}

TEST(MutexTest, TryLockRefusesAHeldLock) {
  Mutex mu;
  MutexLock lock(&mu);
  bool taken = true;
  std::thread other([&] {
    if (mu.TryLock()) {
      mu.Unlock();
    } else {
      taken = false;
    }
  });
  other.join();
  EXPECT_FALSE(taken);
}

TEST(MutexTest, OnlyAContendedLockIsCounted) {
  Mutex mu;
  const std::atomic<uint64_t>& contended =
      GlobalBlockingCounters().contended_locks;
  const uint64_t before = contended.load();
  { MutexLock lock(&mu); }
  EXPECT_EQ(contended.load(), before);

  mu.Lock();
  std::thread waiter([&] { MutexLock lock(&mu); });
  EXPECT_TRUE(test::Await([&] { return contended.load() != before; }));
  mu.Unlock();
  waiter.join();
  EXPECT_EQ(contended.load(), before + 1);
}

TEST(CondVarTest, SignalledWaiterSeesTheChange) {
  Mutex mu;
  CondVar changed;
  bool ready = false;
  std::thread producer([&] {
    MutexLock lock(&mu);
    ready = true;
    changed.SignalOne();
  });
  {
    MutexLock lock(&mu);
    while (!ready) changed.Wait(&mu);
  }
  producer.join();
  EXPECT_TRUE(ready);
}

TEST(CondVarTest, WaitUntilGivesUpAtTheDeadlineAndNotBefore) {
  Mutex mu;
  CondVar never;
  const int64_t deadline_ns = SystemClock::Get().NowNs() + 5'000'000;
  MutexLock lock(&mu);
  while (never.WaitUntil(&mu, deadline_ns)) {
  }
  EXPECT_GE(SystemClock::Get().NowNs(), deadline_ns);
}

}  // namespace
}  // namespace commsched

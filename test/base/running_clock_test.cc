#include "base/running_clock.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"
#include "test/support/fake_clock.h"

namespace commsched {
namespace {

constexpr int64_t kMsNs = 1000 * 1000;
constexpr int64_t kSecondNs = 1000 * kMsNs;
constexpr int64_t kTickNs = RunningClock::kTickNs;
constexpr int64_t kMostNs = RunningClock::kMostNs;

TEST(RunningClockTest, RunsWithItsClockWhileItIsRead) {
  FakeClock below;
  const RunningClock clock(below);
  const int64_t begin_ns = clock.NowNs();
  for (int i = 1; i <= 100; ++i) {
    below.AdvanceNs(kTickNs);
    EXPECT_EQ(clock.NowNs() - begin_ns, i * kTickNs);
  }
}

TEST(RunningClockTest, ShowsTimesBetweenTicks) {
  FakeClock below;
  const RunningClock clock(below);
  const int64_t begin_ns = clock.NowNs();
  for (int i = 1; i <= 1000; ++i) {
    below.AdvanceNs(kMsNs);
    EXPECT_EQ(clock.NowNs() - begin_ns, i * kMsNs);
  }
}

TEST(RunningClockTest, DoesNotCountTheTimeThatTheProcessWasStopped) {
  FakeClock below;
  const RunningClock clock(below);
  const int64_t begin_ns = clock.NowNs();
  below.AdvanceNs(3600 * kSecondNs);
  EXPECT_EQ(clock.NowNs() - begin_ns, kMostNs);
  below.AdvanceNs(kTickNs);
  EXPECT_EQ(clock.NowNs() - begin_ns, kMostNs + kTickNs);
}

// So that a hang on a machine where threads wait for seconds to run ends.
TEST(RunningClockTest, CountsSomeOfEveryGap) {
  FakeClock below;
  const RunningClock clock(below);
  const int64_t deadline_ns = clock.NowNs() + kSecondNs;
  int gaps = 0;
  for (; clock.NowNs() < deadline_ns && gaps < 100; ++gaps) {
    below.AdvanceNs(5 * kSecondNs);
  }
  EXPECT_EQ(gaps, kSecondNs / kMostNs);
}

TEST(RunningClockTest, ASleeperWakesToReadTheClock) {
  FakeClock below;
  const RunningClock clock(below);
  below.AdvanceNs(7 * kSecondNs);
  const int64_t now_ns = clock.NowNs();
  EXPECT_EQ(clock.SleepUntilNs(now_ns + 60 * kSecondNs),
            below.NowNs() + kTickNs);
  EXPECT_EQ(clock.SleepUntilNs(now_ns + kMsNs), below.NowNs() + kMsNs);
  EXPECT_EQ(clock.SleepUntilNs(now_ns - kMsNs), below.NowNs());
  EXPECT_EQ(clock.SleepUntilNs(kNoDeadlineNs), kNoDeadlineNs);
}

TEST(RunningClockTest, ThreadsCountAGapOnceAndNeverSeeItWhole) {
  FakeClock below;
  const RunningClock clock(below);
  constexpr int kGaps = 1000;
  const int64_t end_ns = clock.NowNs() + kGaps * kMostNs;
  std::atomic<bool> done{false};
  std::atomic<bool> wrong{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      int64_t before_ns = 0;
      while (!done) {
        const int64_t now_ns = clock.NowNs();
        if (now_ns < before_ns || now_ns > end_ns) wrong = true;
        before_ns = now_ns;
      }
    });
  }
  for (int i = 0; i < kGaps; ++i) {
    below.AdvanceNs(60 * kSecondNs);
    (void)clock.NowNs();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(clock.NowNs(), end_ns);
}

}  // namespace
}  // namespace commsched

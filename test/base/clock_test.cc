#include "base/clock.h"

#include <thread>

#include "gtest/gtest.h"
#include "test/support/fake_clock.h"

namespace commsched {
namespace {

TEST(SystemClockTest, NeverDecreases) {
  const Clock& clock = SystemClock::Get();
  int64_t last = clock.NowNs();
  for (int i = 0; i < 10000; ++i) {
    const int64_t now = clock.NowNs();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ThreadCpuNsTest, CountsTheCallingThreadOnly) {
  const int64_t before = ThreadCpuNs();
  int64_t in_other = 0;
  std::thread worker([&] {
    const int64_t start = ThreadCpuNs();
    while (ThreadCpuNs() - start < 20'000'000) {
    }
    in_other = ThreadCpuNs() - start;
  });
  worker.join();
  EXPECT_GE(in_other, 20'000'000);
  EXPECT_LT(ThreadCpuNs() - before, in_other);
}

TEST(FakeClockTest, MovesOnlyWhenTold) {
  FakeClock clock;
  const int64_t start = clock.NowNs();
  EXPECT_EQ(clock.NowNs(), start);
  clock.AdvanceNs(5);
  EXPECT_EQ(clock.NowNs(), start + 5);
}

}  // namespace
}  // namespace commsched

#include "exec/monitor_guard.h"

#include <atomic>
#include <string>

#include "base/running_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/await.h"

namespace commsched {
namespace {

constexpr int64_t kSecondNs = int64_t{1} * 1000 * 1000 * 1000;

TEST(MonitorRoundTest, OutsideOfARoundThereIsNoLimit) {
  MonitorRound round;
  EXPECT_EQ(round.LimitNs(kSecondNs), MonitorRound::kNone);
  round.Enter(5);
  round.SetDeadline(10);
  round.Leave();
  EXPECT_EQ(round.LimitNs(kSecondNs), MonitorRound::kNone);
}

TEST(MonitorRoundTest, WithoutALaunchARoundMayTakeWhatALaunchMay) {
  MonitorRound round;
  round.Enter(5);
  EXPECT_EQ(round.LimitNs(kSecondNs), 5 + kSecondNs);
  EXPECT_EQ(round.LimitNs(INT64_MAX), MonitorRound::kNone);
}

// A deadline that was missed before the round is what it is about to find.
TEST(MonitorRoundTest, TheLimitIsASecondAfterTheDeadlineOrTheBegin) {
  MonitorRound round;
  round.SetDeadline(100);
  round.Enter(5);
  EXPECT_EQ(round.LimitNs(7 * kSecondNs), 100 + kSecondNs);
  round.Enter(200);
  EXPECT_EQ(round.LimitNs(7 * kSecondNs), 200 + kSecondNs);
}

TEST(MonitorGuardTest, ARoundThatDoesNotEndFailsItsSessionOnce) {
  MonitorRound stuck, outside;
  std::atomic<int> num_failed{0};
  std::string why;
  MonitorGuard guard;
  const uint64_t other = guard.Watch(&outside, /*timeout_ns=*/0, [](auto&) {
    ADD_FAILURE() << "its monitor is in no round";
  });
  stuck.Enter(RunningClock::Get().NowNs());
  const uint64_t number =
      guard.Watch(&stuck, /*timeout_ns=*/0, [&](const absl::Status& status) {
        why = std::string(status.message());
        ++num_failed;
      });
  EXPECT_TRUE(test::Await([&] { return num_failed == 1; }));
  guard.Unwatch(number);
  guard.Unwatch(other);
  EXPECT_EQ(num_failed, 1);
  EXPECT_THAT(why, testing::HasSubstr("has been in a call of CUDA or NCCL"));
}

// The thread ends with the last, and begins again with the next.
TEST(MonitorGuardTest, WhatIsWatchedLaterIsFoundToo) {
  MonitorGuard guard;
  for (int i = 0; i < 3; ++i) {
    MonitorRound stuck;
    stuck.Enter(RunningClock::Get().NowNs());
    std::atomic<bool> has_failed{false};
    const uint64_t number =
        guard.Watch(&stuck, /*timeout_ns=*/0,
                    [&](const absl::Status&) { has_failed = true; });
    EXPECT_TRUE(test::Await([&] { return has_failed.load(); }));
    guard.Unwatch(number);
  }
}

}  // namespace
}  // namespace commsched

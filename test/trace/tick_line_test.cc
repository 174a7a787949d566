#include "trace/tick_line.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(TickLineTest, GoesStraightFromAnchorToAnchor) {
  const TickLine line({{100, 1000}, {300, 2000}, {400, 2100}});
  EXPECT_EQ(line.ToNs(100), 1000);
  EXPECT_EQ(line.ToNs(200), 1500);
  EXPECT_EQ(line.ToNs(300), 2000);
  EXPECT_EQ(line.ToNs(350), 2050);
  EXPECT_EQ(line.ToNs(400), 2100);
}

TEST(TickLineTest, GoesOnAsItBeginsAndEnds) {
  const TickLine line({{100, 1000}, {300, 2000}, {400, 2100}});
  EXPECT_EQ(line.ToNs(80), 900);
  EXPECT_EQ(line.ToNs(500), 2200);
}

TEST(TickLineTest, TakesAnchorsInAnyOrder) {
  const TickLine line({{400, 2100}, {100, 1000}, {300, 2000}});
  EXPECT_EQ(line.ToNs(200), 1500);
  EXPECT_EQ(line.ToNs(350), 2050);
}

TEST(TickLineTest, LeavesOutAnAnchorThatWouldRunBackwards) {
  const TickLine line({{100, 1000}, {200, 900}, {300, 2000}});
  EXPECT_EQ(line.ToNs(200), 1500);
}

TEST(TickLineTest, NeverRunsBackwards) {
  // 2.44 GHz for a day; the rate changes a little at the anchor.
  constexpr int64_t kDayNs = int64_t{86400} * 1000 * 1000 * 1000;
  constexpr int64_t kTicks = int64_t{86400} * 2445417000;
  const TickLine line({{0, 0}, {kTicks, kDayNs}, {2 * kTicks, 2 * kDayNs + 7}});
  int64_t last = line.ToNs(kTicks - 1000);
  for (int64_t ticks = kTicks - 999; ticks < kTicks + 1000; ++ticks) {
    const int64_t ns = line.ToNs(ticks);
    ASSERT_GE(ns, last);
    last = ns;
  }
  EXPECT_EQ(line.ToNs(kTicks), kDayNs);
}

// The best of several: a thread that loses its CPU inside an anchor has an
// inexact one.
TEST(TickLineTest, MeetsTheClockBetweenItsAnchors) {
  if (!HasTicks()) GTEST_SKIP() << "no time stamp counter to rely on";
  constexpr int64_t kApartNs = 1000 * 1000;
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 20; ++i) {
    const TickAnchor begin = ReadTickAnchor();
    while (SystemClock::Get().NowNs() < begin.ns + kApartNs) {
    }
    const TickAnchor between = ReadTickAnchor();
    while (SystemClock::Get().NowNs() < between.ns + kApartNs) {
    }
    const TickLine line({begin, ReadTickAnchor()});
    best = std::min(best, std::abs(line.ToNs(between.ticks) - between.ns));
  }
  EXPECT_LE(best, 1000);
}

}  // namespace
}  // namespace commsched

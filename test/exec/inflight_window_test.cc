#include "exec/inflight_window.h"

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr InflightWindow::Limits kTwoLaunches100Bytes = {.max_launches = 2,
                                                         .max_bytes = 100};

TEST(InflightWindowTest, RefusalChangesNothing) {
  InflightWindow window(kTwoLaunches100Bytes);
  ASSERT_TRUE(window.TryAdmit(60));
  EXPECT_FALSE(window.TryAdmit(41));
  EXPECT_EQ(window.launches(), 1u);
  EXPECT_EQ(window.bytes(), 60u);
}

TEST(InflightWindowTest, LaunchesAreCappedWhateverTheyWeigh) {
  InflightWindow window(kTwoLaunches100Bytes);
  ASSERT_TRUE(window.TryAdmit(0));
  ASSERT_TRUE(window.TryAdmit(0));
  EXPECT_FALSE(window.TryAdmit(0));
}

TEST(InflightWindowTest, OversizedLaunchIsAdmittedAlone) {
  InflightWindow window(kTwoLaunches100Bytes);
  EXPECT_TRUE(window.TryAdmit(1000));
  EXPECT_FALSE(window.TryAdmit(1));
}

TEST(InflightWindowTest, OversizedLaunchWaitsForAnEmptyWindow) {
  InflightWindow window(kTwoLaunches100Bytes);
  ASSERT_TRUE(window.TryAdmit(1));
  EXPECT_FALSE(window.TryAdmit(1000));
}

TEST(InflightWindowTest, WhatPassesIsSeenByThePeaksOnly) {
  InflightWindow window(kTwoLaunches100Bytes);
  window.Pass(60);
  window.Pass(40);
  EXPECT_EQ(window.launches(), 0u);
  EXPECT_EQ(window.bytes(), 0u);
  EXPECT_EQ(window.peak_launches(), 1u);
  EXPECT_EQ(window.peak_bytes(), 60u);
}

TEST(InflightWindowTest, ZeroMeansNoLimit) {
  InflightWindow window({});
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(window.TryAdmit(uint64_t{1} << 40));
  EXPECT_EQ(window.launches(), 100u);
}

TEST(InflightWindowTest, PeaksAreKeptAfterRelease) {
  InflightWindow window(kTwoLaunches100Bytes);
  ASSERT_TRUE(window.TryAdmit(40));
  ASSERT_TRUE(window.TryAdmit(50));
  ASSERT_OK(window.Release(40));
  ASSERT_OK(window.Release(50));
  EXPECT_EQ(window.peak_launches(), 2u);
  EXPECT_EQ(window.peak_bytes(), 90u);
}

TEST(InflightWindowTest, CountingACompletionTwiceIsAnInternalError) {
  InflightWindow window(kTwoLaunches100Bytes);
  ASSERT_TRUE(window.TryAdmit(8));
  ASSERT_OK(window.Release(8));
  EXPECT_THAT(window.Release(8),
              StatusIs(absl::StatusCode::kInternal, "release of a launch"));
}

TEST(InflightWindowTest, ReleasingTheLastLaunchWithOtherBytesIsAnError) {
  InflightWindow window(kTwoLaunches100Bytes);
  ASSERT_TRUE(window.TryAdmit(8));
  EXPECT_THAT(window.Release(7),
              StatusIs(absl::StatusCode::kInternal, "7 bytes"));
  EXPECT_EQ(window.bytes(), 8u);
}

}  // namespace
}  // namespace commsched

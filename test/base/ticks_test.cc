#include "base/ticks.h"

#include <cstdint>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

class TicksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasTicks()) GTEST_SKIP() << "no time stamp counter to rely on";
  }
};

TEST_F(TicksTest, NeverDecrease) {
  int64_t last = ReadTicks();
  for (int i = 0; i < 10000; ++i) {
    const int64_t now = ReadTicks();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST_F(TicksTest, AnAnchorIsBetweenWhatIsReadBeforeAndAfter) {
  const int64_t ticks_before = ReadTicks();
  const int64_t ns_before = SystemClock::Get().NowNs();
  const TickAnchor anchor = ReadTickAnchor();
  const int64_t ns_after = SystemClock::Get().NowNs();
  const int64_t ticks_after = ReadTicks();

  EXPECT_GE(anchor.ticks, ticks_before);
  EXPECT_LE(anchor.ticks, ticks_after);
  EXPECT_GE(anchor.ns, ns_before);
  EXPECT_LE(anchor.ns, ns_after);
}

}  // namespace
}  // namespace commsched

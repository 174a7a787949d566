#include "comm/polling.h"

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(PollingTest, IsWorthwhileAsLongAsTheCoreComesBackSoon) {
  Polling polling;
  EXPECT_TRUE(polling.IsWorthwhile(0));
  polling.OnYield(100, 100 + Polling::kSliceNs - 1);
  EXPECT_TRUE(polling.IsWorthwhile(100 + Polling::kSliceNs));
}

TEST(PollingTest, ATimeSliceThatIsLostIsPaidBack) {
  Polling polling;
  constexpr int64_t kBackNs = 100 + 2 * Polling::kSliceNs;
  constexpr int64_t kAgainNs = kBackNs + 64 * Polling::kSliceNs;
  polling.OnYield(100, kBackNs);
  EXPECT_FALSE(polling.IsWorthwhile(kBackNs));
  EXPECT_FALSE(polling.IsWorthwhile(kAgainNs - 1));
  EXPECT_TRUE(polling.IsWorthwhile(kAgainNs));
}

}  // namespace
}  // namespace commsched

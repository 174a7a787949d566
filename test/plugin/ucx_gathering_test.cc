// How long who sleeps lets bytes of large launches gather.
#include <cstdint>

#include "gtest/gtest.h"
#include "plugins/ucx/network/gathering.h"

namespace commsched {
namespace {

int64_t GatheringNsAt(double bytes_per_s) {
  ucx::LinkLevel link = ucx::DefaultLinkProfile().network;
  link.bytes_per_s = bytes_per_s;
  return ucx::GatheringNs(link);
}

TEST(UcxGatheringTest, BytesGatherForAsLongAsTheLinkNeedsFor128KiB) {
  EXPECT_EQ(GatheringNsAt(262'144'000), 500'000);
}

TEST(UcxGatheringTest, OnASlowLinkTheyGatherForAMillisecond) {
  EXPECT_EQ(GatheringNsAt(125e6), 1'000'000);
  EXPECT_EQ(GatheringNsAt(1), 1'000'000);
}

TEST(UcxGatheringTest, OnAFastLinkWhoIsWokenLooksAtOnce) {
  EXPECT_EQ(GatheringNsAt(655'360'000), 200'000);
  EXPECT_EQ(GatheringNsAt(656e6), 0);
}

TEST(UcxGatheringTest, SoItIsWhereNoProfileWasMeasured) {
  EXPECT_EQ(ucx::GatheringNs(ucx::DefaultLinkProfile().network), 0);
}

}  // namespace
}  // namespace commsched

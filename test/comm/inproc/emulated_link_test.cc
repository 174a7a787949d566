#include "comm/inproc/emulated_link.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using RankList = std::vector<int32_t>;

constexpr LinkSpec kGigabyte10Us = {.bytes_per_s = 1e9, .latency_ns = 10'000};

TEST(EmulatedLinkTest, ATransferTakesLatencyAndBytesOverBandwidth) {
  EmulatedLink link(kGigabyte10Us, 2);
  EXPECT_EQ(link.Book(RankList{0, 1}, 100, 5000), 100 + 10'000 + 5000);
}

// A latency of 10 us, in which other transfers are under way.
TEST(EmulatedLinkTest, TheNextStartsWhenTheBytesAreOffTheLink) {
  EmulatedLink link(kGigabyte10Us, 2);
  EXPECT_EQ(link.Book(RankList{0, 1}, 0, 1000), 11'000);
  EXPECT_EQ(link.Book(RankList{0, 1}, 500, 1000), 12'000);
  EXPECT_EQ(link.Book(RankList{0, 1}, 30'000, 1000), 41'000);
}

TEST(EmulatedLinkTest, ATransferWaitsForTheBusiestOfItsMembers) {
  EmulatedLink link(kGigabyte10Us, 4);
  EXPECT_EQ(link.Book(RankList{0, 1}, 0, 90'000), 100'000);
  EXPECT_EQ(link.Book(RankList{1, 2}, 0, 1000), 101'000);
  EXPECT_EQ(link.Book(RankList{2, 3}, 0, 1000), 102'000);
}

TEST(EmulatedLinkTest, DisjointMembersTransferAtTheSameTime) {
  EmulatedLink link(kGigabyte10Us, 4);
  EXPECT_EQ(link.Book(RankList{0, 1}, 0, 1000), 11'000);
  EXPECT_EQ(link.Book(RankList{2, 3}, 0, 1000), 11'000);
}

TEST(EmulatedLinkTest, OneMemberNeedsNoLink) {
  EmulatedLink link(kGigabyte10Us, 2);
  EXPECT_EQ(link.Book(RankList{1}, 7, 1e9), 7);
  EXPECT_EQ(link.Book(RankList{0, 1}, 7, 0), 10'007);
}

TEST(EmulatedLinkTest, SendsOfBothDirectionsGoAtTheSameTime) {
  EmulatedLink link(kGigabyte10Us, 2);
  EXPECT_EQ(link.BookPair(0, 1, 0, 1000), 11'000);
  EXPECT_EQ(link.BookPair(1, 0, 0, 1000), 11'000);
}

TEST(EmulatedLinkTest, SendsInOneDirectionOfARankFollowEachOther) {
  EmulatedLink link(kGigabyte10Us, 3);
  EXPECT_EQ(link.BookPair(0, 1, 0, 1000), 11'000);
  EXPECT_EQ(link.BookPair(0, 2, 0, 1000), 12'000);  // 0's way out
  EXPECT_EQ(link.BookPair(2, 1, 0, 1000), 12'000);  // 1's way in
}

TEST(EmulatedLinkTest, ACollectiveTakesBothDirections) {
  EmulatedLink link(kGigabyte10Us, 3);
  EXPECT_EQ(link.BookPair(0, 1, 0, 1000), 11'000);
  EXPECT_EQ(link.Book(RankList{1, 2}, 0, 1000), 12'000);
  EXPECT_EQ(link.BookPair(2, 0, 0, 1000), 13'000);
}

TEST(EmulatedLinkTest, WithoutBandwidthNothingIsEmulated) {
  EmulatedLink link(LinkSpec{}, 2);
  EXPECT_FALSE(link.enabled());
  EXPECT_EQ(link.Book(RankList{0, 1}, 7, 1e9), 7);
  EXPECT_EQ(link.BookPair(0, 1, 7, 1e9), 7);
}

TEST(EmulatedLinkTest, AbsurdlySlowLinksDoNotOverflow) {
  EmulatedLink link({.bytes_per_s = 1e-300, .latency_ns = 1}, 2);
  const int64_t end_ns = link.Book(RankList{0, 1}, 5, 1e18);
  EXPECT_EQ(end_ns, 5 + int64_t{1'000'000'000'000'000'000} + 1);
}

TEST(EmulatedLinkTest, ManyAbsurdlyLongTransfersEndAtTheEndOfTime) {
  EmulatedLink link({.bytes_per_s = 1e-300, .latency_ns = 1}, 2);
  int64_t end_ns = 0;
  for (int i = 0; i < 12; ++i) {
    const int64_t next_ns = link.Book(RankList{0, 1}, 0, 1e18);
    EXPECT_GE(next_ns, end_ns);
    end_ns = next_ns;
  }
  EXPECT_EQ(end_ns, std::numeric_limits<int64_t>::max());
}

TEST(LinkConfigTest, WhatIsWrittenIsRead) {
  for (const LinkSpec& link :
       {LinkSpec{}, kGigabyte10Us, LinkSpec{.bytes_per_s = 1.0 / 3},
        LinkSpec{.bytes_per_s = 1e300, .latency_ns = int64_t{1} << 62}}) {
    const absl::StatusOr<LinkSpec> read = ParseLinkConfig(LinkConfig(link));
    ASSERT_OK(read);
    EXPECT_EQ(read->bytes_per_s, link.bytes_per_s);
    EXPECT_EQ(read->latency_ns, link.latency_ns);
  }
}

TEST(LinkConfigTest, NonsenseIsRefusedByKeyAndValue) {
  const std::pair<const char*, const char*> cases[] = {
      {"link_bytes_per_s=-1", "link_bytes_per_s is '-1'"},
      {"link_bytes_per_s=0", "above 0"},
      {"link_bytes_per_s=inf", "finite"},
      {"link_bytes_per_s=nan", "finite"},
      {"link_bytes_per_s=", "link_bytes_per_s is ''"},
      {"link_bytes_per_s=1e9,link_latency_ns=-5", "link_latency_ns is '-5'"},
      {"link_bytes_per_s=1e9,link_latency_ns=1.5", "an integer"},
      {"link_latency_ns=5", "without link_bytes_per_s"},
      {"link_bytes_per_s=1e9,", "unknown key ''"},
      {"bandwidth=1e9", "unknown key 'bandwidth'"},
      {"link_bytes_per_s=0x10", "link_bytes_per_s is '0x10'; it must be a "},
      {"link_bytes_per_s= 5", "link_bytes_per_s is ' 5'"},
      {"link_bytes_per_s=1e9,link_latency_ns=0x10", "link_latency_ns is '0x1"},
      {"link_bytes_per_s=1e9,link_latency_ns= 5", "link_latency_ns is ' 5'"},
  };
  for (const auto& [config, text] : cases) {
    EXPECT_THAT(ParseLinkConfig(config),
                StatusIs(absl::StatusCode::kInvalidArgument, text))
        << config;
  }
}

TEST(LinkConfigTest, AKeyIsGivenOnce) {
  EXPECT_THAT(
      ParseLinkConfig("link_bytes_per_s=1e9,link_bytes_per_s=2e9"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "configuration: link_bytes_per_s is given twice; give it once"));
  EXPECT_THAT(ParseLinkConfig(
                  "link_bytes_per_s=1e9,link_latency_ns=5,link_latency_ns=5"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "link_latency_ns is given twice"));
}

}  // namespace
}  // namespace commsched

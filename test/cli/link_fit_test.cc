#include "cli/link_fit.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// `rounds` of each size over a link of 50 us and 1e9 bytes/s, where a message
// takes 4 us of the processor.
std::vector<LinkSample> Rounds(int rounds) {
  std::vector<LinkSample> samples;
  for (const uint64_t bytes : kLinkBytes) {
    for (int i = 0; i < rounds; ++i) {
      samples.push_back({.bytes = bytes,
                         .seconds = 50e-6 + static_cast<double>(bytes) * 1e-9,
                         .cpu_seconds = 8e-6});
    }
  }
  return samples;
}

TEST(LinkFitTest, FindsTheLinkThatMadeTheTimes) {
  const commsched_link_level_t level = FitLevel(Rounds(3));
  EXPECT_NEAR(static_cast<double>(level.latency_ns), 50'000, 10);
  EXPECT_NEAR(level.bytes_per_s, 1e9, 1e3);
  EXPECT_EQ(level.message_ns, 4000);
}

TEST(LinkFitTest, ARoundOfEachSizeThatWasDisturbedChangesNothing) {
  std::vector<LinkSample> samples = Rounds(5);
  for (size_t i = 0; i < samples.size(); i += 5) {
    samples[i].seconds *= 20;
    samples[i].cpu_seconds *= 20;
  }
  const commsched_link_level_t level = FitLevel(samples);
  EXPECT_NEAR(static_cast<double>(level.latency_ns), 50'000, 10);
  EXPECT_NEAR(level.bytes_per_s, 1e9, 1e3);
  EXPECT_EQ(level.message_ns, 4000);
}

TEST(LinkFitTest, ASizeThatWasSlowAllTheTimeBendsTheRateByLittle) {
  std::vector<LinkSample> samples = Rounds(3);
  for (LinkSample& sample : samples) {
    if (sample.bytes == kLinkBytes[2]) sample.seconds *= 1.5;
  }
  EXPECT_NEAR(FitLevel(samples).bytes_per_s, 1e9, 5e7);
}

TEST(LinkFitTest, TimesThatDoNotGrowGiveTheRateOfTheLargest) {
  std::vector<LinkSample> samples = Rounds(1);
  for (LinkSample& sample : samples) sample.seconds = 1e-3;
  EXPECT_NEAR(FitLevel(samples).bytes_per_s,
              static_cast<double>(kLinkBytes[4]) * 1e3, 1);
}

TEST(LinkPairsTest, TakesOnePairPerHostAndEachHostWithTheFirst) {
  const LinkPairs pairs = PairsOf({0, 0, 0, 1, 2, 2}, 4);
  EXPECT_THAT(pairs.host, ElementsAre(Pair(0, 1), Pair(4, 5)));
  EXPECT_THAT(pairs.network, ElementsAre(Pair(0, 3), Pair(0, 4)));
}

TEST(LinkPairsTest, RoundRobinRanksHaveBothLevels) {
  const LinkPairs pairs = PairsOf({0, 1, 0, 1}, 4);
  EXPECT_THAT(pairs.host, ElementsAre(Pair(0, 2), Pair(1, 3)));
  EXPECT_THAT(pairs.network, ElementsAre(Pair(0, 1)));
}

TEST(LinkPairsTest, AHostAloneHasNoNetwork) {
  const LinkPairs pairs = PairsOf({0, 0}, 4);
  EXPECT_THAT(pairs.host, ElementsAre(Pair(0, 1)));
  EXPECT_THAT(pairs.network, IsEmpty());
}

TEST(LinkPairsTest, ThereIsALimit) {
  const LinkPairs pairs = PairsOf({0, 1, 2, 3, 4, 5, 0, 1, 2}, 2);
  EXPECT_EQ(pairs.host.size(), 2u);
  EXPECT_EQ(pairs.network.size(), 2u);
}

}  // namespace
}  // namespace commsched::cli

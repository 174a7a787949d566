#include "cli/host_list.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

std::vector<size_t> HostsOf(const HostList& hosts, int ranks) {
  std::vector<size_t> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(hosts.HostOf(rank));
  return all;
}

TEST(HostListTest, WithoutSlotsRanksAreDealtOutInBlocks) {
  HostList hosts;
  std::string why;
  ASSERT_TRUE(hosts.Build({"a", "b"}, 5, &why)) << why;
  EXPECT_EQ(HostsOf(hosts, 5), (std::vector<size_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(hosts.LocalRank(4), 1);
  EXPECT_EQ(hosts.LocalSize(4), 2);
}

TEST(HostListTest, RanksFillSlotsInTheOrderOfTheHosts) {
  HostList hosts;
  std::string why;
  ASSERT_TRUE(hosts.Build({"a:1", "b:3", "c"}, 5, &why)) << why;
  EXPECT_EQ(HostsOf(hosts, 5), (std::vector<size_t>{0, 1, 1, 1, 2}));
  EXPECT_EQ(hosts.names(), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(HostListTest, TooFewSlotsAreRefusedWithBothNumbers) {
  HostList hosts;
  std::string why;
  EXPECT_FALSE(hosts.Build({"a:2", "b"}, 4, &why));
  EXPECT_EQ(why, "--hosts has 3 slots, but there are 4 ranks");
}

TEST(HostListTest, AHostThatIsNamedTwiceIsOneHost) {
  HostList hosts;
  std::string why;
  ASSERT_TRUE(hosts.Build({"a:1", "b:1", "a:1"}, 3, &why)) << why;
  EXPECT_EQ(hosts.LocalRank(2), 1);
  EXPECT_EQ(hosts.LocalSize(0), 2);
}

TEST(HostListTest, AddressesWithColonsTakeSlotsAfterBrackets) {
  HostList hosts;
  std::string why;
  ASSERT_TRUE(hosts.Build({"[fe80::1]:2", "::1", "[::2]"}, 4, &why)) << why;
  EXPECT_EQ(hosts.names(), (std::vector<std::string>{"fe80::1", "::1", "::2"}));
  EXPECT_EQ(HostsOf(hosts, 4), (std::vector<size_t>{0, 0, 1, 2}));
}

TEST(HostListTest, TextsOfAnotherFormAreNamed) {
  for (const char* text : {"", ":3", "a:", "a:0", "a:x", "a:2x", "a:4097",
                           "[::1", "[]", "[::1]2"}) {
    HostList hosts;
    std::string why;
    EXPECT_FALSE(hosts.Build({"b", text}, 1, &why)) << text;
    EXPECT_NE(why.find("'" + std::string(text) + "'"), std::string::npos)
        << why;
  }
}

TEST(HostListTest, WithoutHostsAllRanksAreHere) {
  HostList hosts;
  std::string why;
  ASSERT_TRUE(hosts.Build({}, 3, &why)) << why;
  EXPECT_TRUE(hosts.empty());
  EXPECT_EQ(hosts.LocalRank(2), 2);
  EXPECT_EQ(hosts.LocalSize(2), 3);
}

}  // namespace
}  // namespace commsched::cli

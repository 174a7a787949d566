// Small all-to-alls of a host by way of other ranks.
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/choice.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "test/conformance/collective_case.h"
#include "test/plugin/built_job.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using Random = std::mt19937_64;
using ucx::Layout;

std::vector<int> OneHost(int size) {
  return std::vector<int>(static_cast<size_t>(size));
}

// An all-to-all of one member with as many elements for each rank.
struct BruckLaunch {
  explicit BruckLaunch(uint64_t count) {
    member.count = count;
    launch.kind = COMMSCHED_ALL_TO_ALL;
    launch.dtype = COMMSCHED_F32;
    launch.num_members = 1;
    launch.members = &member;
  }
  BruckLaunch(const BruckLaunch&) = delete;
  BruckLaunch& operator=(const BruckLaunch&) = delete;

  commsched_member_t member = {};
  commsched_launch_t launch = {};
};

Shape BruckShape(int size, Random& random) {
  for (;;) {
    const Shape shape = RandomShape(size, random);
    if (shape.kind == COMMSCHED_ALL_TO_ALL) return shape;
  }
}

TEST(UcxBruckTest, AnyNumberOfRanksGetsItsParts) {
  ucx::ChoiceOptions options;
  options.forced = &ucx::kBruck;
  for (int size = 9; size <= 40; ++size) {
    Random random(static_cast<uint64_t>(size));
    const Shape shape = BruckShape(size, random);
    MemberCase member;
    member.count = random() % 20;
    member.gap = random() % 3;
    CollectiveCase launch(shape, {member}, /*in_place=*/random() % 2 == 0,
                          /*deterministic=*/true, random);
    for (int rank = 0; rank < size; ++rank) launch.Reset(rank);
    BuiltJob job(OneHost(size), options,
                 [&](int rank) -> const commsched_launch_t& {
                   return launch.launch(rank);
                 });
    ASSERT_EQ(&job.algorithm(), &ucx::kBruck);
    ASSERT_TRUE(job.Run(random)) << launch.Describe();
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_OK(launch.Check(rank)) << launch.Describe();
    }
  }
}

TEST(UcxBruckTest, MessagesGrowWithTheRootOfTheNumberOfRanks) {
  const BruckLaunch one(1);
  for (const int size : {3, 4, 16, 17, 64, 100, 1000}) {
    const Layout layout(OneHost(size));
    ucx::Operation operation;
    ucx::BuildNowhere(ucx::kBruck,
                      {one.launch, layout, 1, 1 << 20, /*measures=*/true},
                      &operation);
    int radix = 1;
    while (radix * radix < size) ++radix;
    EXPECT_LE(operation.messages.size(), static_cast<size_t>(4 * (radix - 1)))
        << size << " ranks";
  }
}

TEST(UcxBruckTest, ItIsChosenForSmallPartsOfManyRanksOfAHost) {
  const auto chosen = [](const std::vector<int>& hosts, uint64_t count) {
    const Layout layout(hosts);
    return ucx::Choices(layout, {}).Of(BruckLaunch(count).launch).algorithm;
  };
  EXPECT_EQ(chosen(OneHost(64), 16), &ucx::kBruck);
  EXPECT_EQ(chosen(OneHost(9), 16), &ucx::kBruck);
  EXPECT_EQ(chosen(OneHost(8), 16), &ucx::kExchange);
  EXPECT_EQ(chosen(OneHost(64), 16 << 10), &ucx::kExchange);
  std::vector<int> two_hosts = OneHost(64);
  two_hosts.back() = 1;
  EXPECT_EQ(chosen(two_hosts, 16), &ucx::kExchange);
}

// A rank may know no counts but its own, and cannot tell how others cut what is
// as large in all.
TEST(UcxBruckTest, WhatMayBeCutOtherwiseByOthersGoesStraight) {
  constexpr size_t kSize = 64;
  const Layout layout(OneHost(kSize));
  const std::vector<uint64_t> counts(kSize * kSize, 16);
  BruckLaunch one(16);
  one.member.counts = counts.data();
  EXPECT_EQ(ucx::Choices(layout, {}).Of(one.launch).algorithm, &ucx::kExchange);

  const std::vector<commsched_member_t> members(2, BruckLaunch(8).member);
  BruckLaunch two(8);
  two.launch.members = members.data();
  two.launch.num_members = 2;
  EXPECT_EQ(ucx::Choices(layout, {}).Of(two.launch).algorithm, &ucx::kExchange);
}

TEST(UcxBruckTest, DataComesByWayOfRanksThatWaitThemselves) {
  const Layout layout(OneHost(9));
  const BruckLaunch one(16);
  ucx::Operation operation;
  ucx::BuildNowhere(ucx::kBruck,
                    {one.launch, layout, 0, 1 << 20, /*measures=*/true},
                    &operation);
  EXPECT_TRUE(operation.hands_on);
}

}  // namespace
}  // namespace commsched

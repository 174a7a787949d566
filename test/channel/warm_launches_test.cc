#include "channel/warm_launches.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace commsched {
namespace {

commsched_backend_t SendsAndReceives() {
  commsched_backend_t backend = {};
  backend.capabilities = COMMSCHED_BACKEND_P2P;
  return backend;
}

GroupSpec GroupOf(int size, int rank) {
  GroupSpec group;
  for (int r = 0; r < size; ++r) group.ranks.push_back(r);
  group.rank = rank;
  return group;
}

TEST(WarmLaunchesTest, AllRanksExpectTheSameCollectives) {
  WarmLaunches first(SendsAndReceives(), GroupOf(3, 0));
  WarmLaunches last(SendsAndReceives(), GroupOf(3, 2));
  const auto of_first = first.launches();
  const auto of_last = last.launches();
  ASSERT_EQ(of_first.size(), of_last.size());
  std::set<commsched_collective_t> kinds;
  for (size_t i = 0; i < of_first.size(); ++i) {
    EXPECT_EQ(of_first[i]->kind, of_last[i]->kind);
    EXPECT_EQ(first.numbers()[i],
              of_first[i]->kind == COMMSCHED_SEND ? 1u : 0u);
    kinds.insert(of_first[i]->kind);
    if (of_first[i]->kind == COMMSCHED_SEND) continue;
    ASSERT_EQ(of_first[i]->num_members, 1u);
    EXPECT_EQ(of_first[i]->members[0].count, of_last[i]->members[0].count);
  }
  EXPECT_EQ(kinds.size(), 7u);
}

TEST(WarmLaunchesTest, BatchesAreOfAllPeersBothWays) {
  WarmLaunches warm(SendsAndReceives(), GroupOf(3, 1));
  const commsched_launch_t& batch = *warm.launches().back();
  ASSERT_EQ(batch.kind, static_cast<commsched_collective_t>(COMMSCHED_SEND));
  std::set<std::pair<int, uint32_t>> messages;
  for (uint32_t i = 0; i < batch.num_members; ++i) {
    messages.emplace(batch.members[i].peer, batch.members[i].direction);
  }
  const std::set<std::pair<int, uint32_t>> expected = {{0, COMMSCHED_SEND},
                                                       {0, COMMSCHED_RECV},
                                                       {2, COMMSCHED_SEND},
                                                       {2, COMMSCHED_RECV}};
  EXPECT_EQ(messages, expected);
}

// Each would take buffers for all others.
TEST(WarmLaunchesTest, OfManyRanksPairsAreNotConnected) {
  WarmLaunches warm(SendsAndReceives(),
                    GroupOf(WarmLaunches::kMostPeers + 1, 0));
  for (const commsched_launch_t* launch : warm.launches()) {
    EXPECT_NE(launch->kind,
              static_cast<commsched_collective_t>(COMMSCHED_SEND));
    EXPECT_NE(launch->kind,
              static_cast<commsched_collective_t>(COMMSCHED_ALL_TO_ALL));
  }
}

TEST(WarmLaunchesTest, ABackendIsAskedForWhatItTakesOnly) {
  commsched_backend_t backend = {};
  backend.kinds = 1u << COMMSCHED_BROADCAST;
  WarmLaunches warm(backend, GroupOf(2, 0));
  EXPECT_FALSE(warm.launches().empty());
  for (const commsched_launch_t* launch : warm.launches()) {
    EXPECT_EQ(launch->kind,
              static_cast<commsched_collective_t>(COMMSCHED_BROADCAST));
  }
}

}  // namespace
}  // namespace commsched

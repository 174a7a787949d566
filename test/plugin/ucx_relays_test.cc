// What of an all-gather goes by way of a third host, on hosts with unevenly
// much.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/choice.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/algorithms/relays.h"
#include "plugins/ucx/algorithms/routes.h"

namespace commsched {
namespace {

using ucx::GatherLoads;
using ucx::Layout;
using ucx::Operation;
using ucx::Range;
using ucx::Relays;

using Random = std::mt19937_64;
using Hosts = std::vector<int>;
using Counts = std::vector<uint64_t>;

constexpr uint64_t kElementBytes = 4;

// Parts lie one behind the other.
struct Gather {
  Layout layout;
  Counts counts;
  Operation operation = {};
  Relays relays{layout, &operation};

  Gather(const Hosts& hosts, const Counts& counts)
      : layout(hosts), counts(counts) {
    for (int rank = 0; rank < layout.size(); ++rank) {
      relays.Add(rank, this->counts[static_cast<size_t>(rank)]);
    }
    relays.Find(kElementBytes);
    relays.Cut([&](int rank) { return PartOf(rank); });
  }
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  Range PartOf(int rank) const {
    Range part;
    for (int before = 0; before < rank; ++before) {
      part.begin += counts[static_cast<size_t>(before)];
    }
    part.count = counts[static_cast<size_t>(rank)];
    return part;
  }
  uint64_t OwnOf(int host) const {
    uint64_t own = 0;
    for (const int rank : layout.RanksOf(host)) {
      own += counts[static_cast<size_t>(rank)];
    }
    return own;
  }
  GatherLoads Loads() const {
    uint64_t all = 0;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (int host = 0; host < layout.num_hosts(); ++host) {
      all += OwnOf(host);
      least = std::min(least, OwnOf(host));
      most = std::max(most, OwnOf(host));
    }
    return {layout.num_hosts(), all, least, most};
  }
  std::string Describe() const {
    std::string hosts;
    for (int rank = 0; rank < layout.size(); ++rank) {
      absl::StrAppend(&hosts, layout.HostOf(rank), " ");
    }
    return absl::StrCat("hosts ", hosts, ", counts ",
                        absl::StrJoin(counts, ","));
  }
};

Gather RandomGather(Random& random) {
  const int size = 3 + static_cast<int>(random() % 20);
  const uint64_t num_hosts = 3 + random() % 5;
  Hosts hosts;
  Counts counts;
  for (int rank = 0; rank < size; ++rank) {
    hosts.push_back(rank < 3 ? rank : static_cast<int>(random() % num_hosts));
    const bool is_large = random() % 4 == 0;
    counts.push_back(
        random() % 5 == 0 ? 0 : random() % (is_large ? 1'000'000 : 50'000));
  }
  return Gather(hosts, counts);
}

TEST(GatherLoadsTest, StraightTheLargestHostSendsToAllOthers) {
  const GatherLoads loads(3, 8, 2, 4);
  EXPECT_EQ(loads.straight, 8u);
  EXPECT_EQ(loads.relayed, 6u);
}

TEST(GatherLoadsTest, EvenHostsAndTwoHostsGainNothing) {
  for (const GatherLoads& loads :
       {GatherLoads(4, 12, 3, 3), GatherLoads(2, 4, 1, 3),
        GatherLoads(1, 4, 4, 4)}) {
    EXPECT_EQ(loads.straight, loads.relayed);
    EXPECT_FALSE(loads.AreWorthwhile(1 << 30));
  }
}

TEST(GatherLoadsTest, NoHostSendsLessThanItHas) {
  EXPECT_EQ(GatherLoads(3, 8, 0, 8).relayed, 8u);
}

TEST(RelaysTest, ALittleIsNotWorthAHop) {
  EXPECT_FALSE(GatherLoads(3, 8, 2, 4).AreWorthwhile((32 << 10) - 1));
  EXPECT_TRUE(GatherLoads(3, 8, 2, 4).AreWorthwhile(32 << 10));
}

TEST(RelaysTest, TheHostOfFourSendsHalfOfItsPartsByEachOtherHost) {
  const uint64_t count = 100'000;
  const Gather gather({0, 0, 0, 0, 1, 1, 2, 2}, Counts(8, count));
  ASSERT_EQ(gather.operation.relayed.size(), 4u);
  for (int owner = 0; owner < 4; ++owner) {
    const Operation::Relayed& part =
        gather.operation.relayed[static_cast<size_t>(owner)];
    EXPECT_EQ(part.owner, owner);
    EXPECT_EQ(part.via, owner < 2 ? 1 : 2);
    EXPECT_EQ(part.begin, static_cast<uint64_t>(owner) * count);
    EXPECT_EQ(part.count, count / 2);
  }
}

// Each first part of what a rank has, once, by a host that is not its own.
TEST(RelaysTest, RelayedPartsAreWhatRanksDoNotSendStraight) {
  int num_relayed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const Gather gather = RandomGather(random);
    std::vector<uint64_t> relayed(gather.counts.size());
    for (const Operation::Relayed& part : gather.operation.relayed) {
      uint64_t& done = relayed[static_cast<size_t>(part.owner)];
      EXPECT_EQ(part.begin, gather.PartOf(part.owner).begin + done);
      EXPECT_GT(part.count, 0u);
      EXPECT_NE(part.via, gather.layout.HostOf(part.owner));
      done += part.count;
    }
    for (int rank = 0; rank < gather.layout.size(); ++rank) {
      const uint64_t count = gather.counts[static_cast<size_t>(rank)];
      EXPECT_EQ(relayed[static_cast<size_t>(rank)],
                gather.relays.CountOf(rank, count));
      EXPECT_LE(relayed[static_cast<size_t>(rank)], count);
    }
    num_relayed += gather.relays.exist() ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ": " << gather.Describe();
  }
  EXPECT_GE(num_relayed, 300);
}

TEST(RelaysTest, NoLinkCarriesMoreThanItMust) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const Gather gather = RandomGather(random);
    if (!gather.relays.exist()) continue;
    const auto num_hosts = static_cast<uint64_t>(gather.layout.num_hosts());
    // Once to whom it is sent on by; and H - 2 times by them, or oneself.
    std::vector<uint64_t> spread(num_hosts);
    for (int host = 0; host < gather.layout.num_hosts(); ++host) {
      spread[static_cast<size_t>(host)] = gather.OwnOf(host);
    }
    for (const Operation::Relayed& part : gather.operation.relayed) {
      spread[static_cast<size_t>(gather.layout.HostOf(part.owner))] -=
          part.count;
      spread[static_cast<size_t>(part.via)] += part.count;
    }
    for (int host = 0; host < gather.layout.num_hosts(); ++host) {
      const uint64_t out = gather.OwnOf(host) +
                           (num_hosts - 2) * spread[static_cast<size_t>(host)];
      // What ranks relay is whole elements.
      EXPECT_LE(out, gather.Loads().relayed + num_hosts * gather.counts.size())
          << "seed " << seed << ": " << gather.Describe();
    }
  }
}

// Who sends what to whom, of an element of each relayed part.
TEST(RelayRoutesTest, EachRankGetsItOnceOfOneWhoHasItAndEachHostOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Gather gather = RandomGather(random);
    const Layout& layout = gather.layout;
    const ucx::LaunchShape shape = {.kind = COMMSCHED_ALL_GATHER};
    const ucx::Routes routes(layout, shape);
    for (const Operation::Relayed& part : gather.operation.relayed) {
      std::vector<int> arrivals(static_cast<size_t>(layout.num_hosts()));
      std::vector<int> out(arrivals.size());
      for (int rank = 0; rank < layout.size(); ++rank) {
        int hops = 0;
        for (int at = rank; at != part.owner; ++hops) {
          ASSERT_LT(hops, 4) << "rank " << rank;
          at = routes.RelayedFrom(at, part.owner, part.via).peer;
          ASSERT_GE(at, 0);
        }
        if (rank == part.owner) continue;
        const int from = routes.RelayedFrom(rank, part.owner, part.via).peer;
        if (layout.ShareHost(from, rank)) continue;
        ++arrivals[static_cast<size_t>(layout.HostOf(rank))];
        ++out[static_cast<size_t>(layout.HostOf(from))];
      }
      for (int host = 0; host < layout.num_hosts(); ++host) {
        const bool has_it = host == layout.HostOf(part.owner);
        EXPECT_EQ(arrivals[static_cast<size_t>(host)], has_it ? 0 : 1);
        EXPECT_EQ(out[static_cast<size_t>(host)], has_it ? 1
                                                  : host == part.via
                                                      ? layout.num_hosts() - 2
                                                      : 0);
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ": " << gather.Describe();
  }
}

// Who gets something that others want does not wait for what goes straight.
TEST(RelaysTest, WhatIsRelayedIsSentFirst) {
  const Layout layout({0, 0, 0, 0, 1, 1, 2, 2});
  commsched_member_t member = {};
  member.count = 1 << 19;
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_ALL_GATHER;
  launch.dtype = COMMSCHED_F32;
  launch.num_members = 1;
  launch.members = &member;
  Operation operation;
  ucx::BuildNowhere(ucx::kLevels,
                    {launch, layout, 0, 1 << 20, /*measures=*/true},
                    &operation);
  // Half of the part to rank 4, which sends it on; then to both.
  std::vector<uint64_t> sent(8);
  for (const ucx::Message& message : operation.messages) {
    if (message.is_receive || layout.ShareHost(0, message.peer)) continue;
    if (sent[6] == 0 && message.peer == 6) {
      EXPECT_GE(sent[4], member.count * kElementBytes / 2);
    }
    sent[static_cast<size_t>(message.peer)] += message.bytes;
  }
  EXPECT_EQ(sent[4], member.count * kElementBytes);
  EXPECT_EQ(sent[6], member.count * kElementBytes / 2);
}

}  // namespace
}  // namespace commsched

// What of an all-gather goes by way of a third host, on hosts with unevenly
// much.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/choice.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/algorithms/relays.h"
#include "plugins/ucx/algorithms/routes.h"
#include "test/plugin/built_job.h"

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

TEST(RelaysTest, ASmallPartOfALinkIsNotWorthMessages) {
  EXPECT_FALSE(GatherLoads(3, 320'000, 104'000, 111'000).AreWorthwhile(40));
  EXPECT_TRUE(GatherLoads(3, 320'000, 104'000, 116'000).AreWorthwhile(40));
}

TEST(RelaysTest, NothingIsCutIntoMessagesThatAreSmall) {
  Hosts hosts;
  Counts counts;
  for (int host = 0; host < 64; ++host) {
    hosts.push_back(host);
    counts.push_back(262'144 - 300 + static_cast<uint64_t>(host * 7919 % 600));
  }
  EXPECT_FALSE(Gather(hosts, counts).relays.exist());
  counts[0] = 4 * 262'144;
  const Gather gather(hosts, counts);
  EXPECT_TRUE(gather.relays.exist());
  EXPECT_LE(gather.operation.relayed.size(), 64u);
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
      EXPECT_GE(part.count, Relays::kLeastPartBytes / kElementBytes);
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
      // What is too small for a part is not relayed, nor cut off.
      const uint64_t least = Relays::kLeastPartBytes / kElementBytes;
      const uint64_t num_parts = gather.layout.RanksOf(host).size() + 2;
      EXPECT_LE(out, gather.Loads().relayed +
                         (num_hosts - 2) * num_parts * (least + 1))
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

// An all-gather of these parts, one array of them per member.
class GatherLaunch {
 public:
  explicit GatherLaunch(std::vector<Counts> counts)
      : counts_(std::move(counts)), members_(counts_.size()) {
    for (size_t m = 0; m < members_.size(); ++m) {
      members_[m].counts = counts_[m].data();
    }
    launch_.kind = COMMSCHED_ALL_GATHER;
    launch_.dtype = COMMSCHED_F32;
    launch_.num_members = static_cast<uint32_t>(members_.size());
    launch_.members = members_.data();
  }
  GatherLaunch(const GatherLaunch&) = delete;
  GatherLaunch& operator=(const GatherLaunch&) = delete;

  ucx::LaunchTask Task(const Layout& layout, int rank) const {
    return {launch_, layout, rank, /*chunk_bytes=*/1 << 20, /*measures=*/true};
  }

 private:
  std::vector<Counts> counts_;
  std::vector<commsched_member_t> members_;
  commsched_launch_t launch_ = {};
};

// As many or fewer, or of some ranks none.
Counts SmallerCounts(const Counts& most, Random& random) {
  const uint64_t way = random() % 4;
  Counts counts;
  for (const uint64_t count : most) {
    const bool is_none = way == 0 && random() % 2 == 0;
    const bool is_whole = way == 1 || (way == 2 && random() % 3 != 0);
    counts.push_back(is_none ? 0
                     : is_whole
                         ? count - std::min<uint64_t>(count, random() % 9)
                         : random() % (count + 1));
  }
  if (random() % 3 == 0) counts[random() % counts.size()] = 0;
  return counts;
}

struct ExpectedGather {
  Hosts hosts;
  std::vector<Counts> counts;
};
ExpectedGather RandomExpected(Random& random) {
  ExpectedGather expected;
  const uint64_t num_hosts = 3 + random() % (random() % 8 == 0 ? 40 : 4);
  for (uint64_t host = 0; host < num_hosts; ++host) {
    const uint64_t ranks = random() % 2 == 0 ? 1 : 1 + random() % 5;
    expected.hosts.insert(expected.hosts.end(), ranks, static_cast<int>(host));
  }
  std::shuffle(expected.hosts.begin(), expected.hosts.end(), random);
  expected.counts.resize(random() % 3 == 0 ? 1 + random() % 5 : 1);
  for (Counts& counts : expected.counts) {
    const uint64_t most = 1 + random() % (random() % 3 == 0 ? 4'000 : 400'000);
    const bool are_equal = random() % 2 == 0;
    for (size_t rank = 0; rank < expected.hosts.size(); ++rank) {
      counts.push_back(are_equal           ? most
                       : random() % 4 == 0 ? 0
                                           : random() % (most + 1));
    }
  }
  return expected;
}

bool HasRelayed(const Operation& operation) {
  return std::any_of(operation.messages.begin(), operation.messages.end(),
                     [](const ucx::Message& message) {
                       return message.phase == ucx::kRelayed;
                     });
}

TEST(RelayRoomTest, WhatWasMeasuredHasRoomAndPeersForAnySmallerCounts) {
  int num_relayed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const ExpectedGather expected = RandomExpected(random);
    const Layout layout(expected.hosts);
    const int rank = static_cast<int>(random() % expected.hosts.size());
    const GatherLaunch largest(expected.counts);
    Operation measured;
    ucx::Measure(largest.Task(layout, rank), &measured);
    std::vector<bool> peers(expected.hosts.size());
    ucx::MarkPeersOf(ucx::kLevels, largest.Task(layout, rank), &peers);
    for (int i = 0; i < 6; ++i) {
      std::vector<Counts> counts;
      for (const Counts& most : expected.counts) {
        counts.push_back(SmallerCounts(most, random));
      }
      const GatherLaunch launch(std::move(counts));
      Operation operation;
      ucx::BuildNowhere(ucx::kLevels, launch.Task(layout, rank), &operation);
      num_relayed += HasRelayed(operation) ? 1 : 0;
      EXPECT_LE(operation.messages.size(), measured.messages.capacity());
      EXPECT_LE(operation.steps.size(), measured.steps.capacity());
      EXPECT_LE(operation.copies.size(), measured.copies.capacity());
      EXPECT_LE(operation.sent_on.size(), measured.sent_on.capacity());
      EXPECT_LE(operation.spreads.size(), measured.spreads.capacity());
      EXPECT_LE(operation.relayed.size(), measured.relayed.capacity());
      std::vector<bool> met = peers;
      ucx::MarkPeers(operation, &met);
      EXPECT_EQ(met, peers);
    }
    ASSERT_FALSE(HasFailure())
        << "seed " << seed << ", rank " << rank << " of hosts "
        << absl::StrJoin(expected.hosts, ",") << ", counts "
        << absl::StrJoin(expected.counts[0], ",");
  }
  EXPECT_GE(num_relayed, 300);
}

struct BoundedCase {
  const char* what;
  Hosts hosts;
  Counts counts;
};

// Rooms are held for each launch in flight.
TEST(RelayRoomTest, RoomIsAFewTimesWhatIsNeeded) {
  std::vector<BoundedCase> cases(3);
  cases[0].what = "a large host among many";
  for (int host = 0; host < 63; ++host) {
    cases[0].hosts.insert(cases[0].hosts.end(), host == 0 ? 32 : 16, host);
  }
  cases[0].counts.assign(cases[0].hosts.size(), 1 << 18);
  cases[1].what = "one rank has all";
  for (int host = 0; host < 256; ++host) cases[1].hosts.push_back(host);
  cases[1].counts.assign(cases[1].hosts.size(), 0);
  cases[1].counts[0] = 1 << 26;
  cases[2].what = "equal ranks";
  for (int host = 0; host < 64; ++host) cases[2].hosts.push_back(host);
  cases[2].counts.assign(cases[2].hosts.size(), 1 << 18);
  for (const BoundedCase& each : cases) {
    const Layout layout(each.hosts);
    const GatherLaunch launch({each.counts});
    for (const int rank : {0, 1, layout.size() - 1}) {
      Operation operation;
      ucx::BuildNowhere(ucx::kLevels, launch.Task(layout, rank), &operation);
      EXPECT_LE(operation.messages.capacity(), 6 * operation.messages.size())
          << each.what << ", rank " << rank;
      EXPECT_LE(operation.sent_on.capacity(), 4 * operation.messages.size())
          << each.what << ", rank " << rank;
      EXPECT_LE(operation.steps.capacity(), operation.messages.size())
          << each.what << ", rank " << rank;
    }
  }
}

// Who gets something that others want does not wait for what goes straight.
TEST(RelaysTest, WhatIsRelayedIsSentFirst) {
  const Layout layout({0, 0, 0, 0, 1, 1, 2, 2});
  constexpr uint64_t kCount = 1 << 19;
  const Operation operation =
      BuiltByRank0(ucx::kLevels, layout, COMMSCHED_ALL_GATHER, kCount);
  // Half of the part to rank 4, which sends it on; then to both.
  std::vector<uint64_t> sent(8);
  for (const ucx::Message& message : operation.messages) {
    if (message.is_receive || layout.ShareHost(0, message.peer)) continue;
    if (sent[6] == 0 && message.peer == 6) {
      EXPECT_GE(sent[4], kCount * kElementBytes / 2);
    }
    sent[static_cast<size_t>(message.peer)] += message.bytes;
  }
  EXPECT_EQ(sent[4], kCount * kElementBytes);
  EXPECT_EQ(sent[6], kCount * kElementBytes / 2);
}

}  // namespace
}  // namespace commsched

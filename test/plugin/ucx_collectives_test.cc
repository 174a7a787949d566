// What ranks of `ucx` do for a launch, without a network: messages of all ranks
// are matched in the order of their posts, and progress is made in a random
// one.
#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
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
#include "test/conformance/collective_case.h"
#include "test/plugin/built_job.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ucx::Layout;
using ucx::Operation;

using Random = std::mt19937_64;

// "0,0,1": ranks 0 and 1 on one host.
std::string Text(const std::vector<int>& hosts) {
  return absl::StrJoin(hosts, ",");
}

std::vector<int> RandomHosts(Random& random) {
  const uint64_t most = random() % 8 == 0 ? 36 : 12;
  const int size = 1 + static_cast<int>(random() % most);
  const int per_host = 1 + static_cast<int>(random() % 5);
  const uint64_t way = random() % 3;  // In a row, round robin, anyhow.
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) {
    const int num_hosts = (size + per_host - 1) / per_host;
    hosts.push_back(way == 0   ? rank / per_host
                    : way == 1 ? rank % num_hosts
                               : static_cast<int>(random() % num_hosts));
  }
  return hosts;
}

// Each algorithm forced, and the choice by cost.
std::vector<const ucx::Algorithm*> AllWays() {
  std::vector<const ucx::Algorithm*> ways(ucx::kAlgorithms.begin(),
                                          ucx::kAlgorithms.end());
  ways.push_back(nullptr);
  return ways;
}

TEST(UcxCollectivesTest,
     RandomLaunchesOnRandomHostsGiveTheBitsOfTheDefinitionByEveryAlgorithm) {
  std::map<std::string, int> launches_by;
  const auto num_seeds = static_cast<uint64_t>(test::PropertyCases(150));
  for (uint64_t seed = 0; seed < num_seeds; ++seed) {
    Random random(seed);
    const std::vector<int> hosts = RandomHosts(random);
    Shape shape = RandomShape(static_cast<int>(hosts.size()), random);
    if (shape.kind == COMMSCHED_BARRIER) continue;
    const bool is_large = hosts.size() <= 12 && random() % 4 == 0;
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < 1 + random() % 3; ++m) {
      members.push_back(RandomMember(shape, is_large ? 40'000 : 300, random));
      if (members.back().counts.empty()) members.back().gap = random() % 3;
    }
    CollectiveCase launch(shape, members, random() % 2 == 0,
                          /*deterministic=*/true, random);
    ucx::ChoiceOptions options;
    options.chunk_bytes = random() % 2 == 0 ? 4096 : 1 << 20;
    options.or_by_cost = true;
    for (const ucx::Algorithm* const forced : AllWays()) {
      options.forced = forced;
      for (int rank = 0; rank < shape.size; ++rank) launch.Reset(rank);
      BuiltJob job(hosts, options, [&](int rank) -> const commsched_launch_t& {
        return launch.launch(rank);
      });
      ++launches_by[job.algorithm().name];
      const std::string what =
          absl::StrCat(job.algorithm().name, ", seed ", seed, ", hosts ",
                       Text(hosts), ": ", launch.Describe());
      ASSERT_TRUE(job.Run(random)) << what;
      for (int rank = 0; rank < shape.size; ++rank) {
        ASSERT_OK(launch.Check(rank)) << what;
      }
    }
  }
  for (const ucx::Algorithm* const algorithm : ucx::kAlgorithms) {
    if (algorithm == &ucx::kBruck) continue;  // Few of them are on one host.
    EXPECT_GE(launches_by[algorithm->name], static_cast<int>(num_seeds * 2 / 5))
        << algorithm->name;
  }
}

TEST(UcxCollectivesTest, AnyNumberOfRanksOfAHostGathersByTheTree) {
  ucx::ChoiceOptions options;
  options.forced = &ucx::kTree;
  for (int size = 1; size <= 67; size += size < 18 ? 1 : 5) {
    const std::vector<int> hosts(static_cast<size_t>(size));
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Random random(seed * 100 + static_cast<uint64_t>(size));
      Shape shape = RandomShape(size, random);
      shape.kind = COMMSCHED_ALL_GATHER;
      std::vector<MemberCase> members;
      for (uint64_t m = 0; m < 1 + seed; ++m) {
        members.push_back(RandomMember(shape, 40, random));
        if (members.back().counts.empty()) members.back().gap = random() % 3;
      }
      CollectiveCase launch(shape, members, /*in_place=*/seed % 2 == 0,
                            /*deterministic=*/seed < 2, random);
      for (int rank = 0; rank < size; ++rank) launch.Reset(rank);
      BuiltJob job(hosts, options, [&](int rank) -> const commsched_launch_t& {
        return launch.launch(rank);
      });
      ASSERT_TRUE(job.Run(random)) << launch.Describe();
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_OK(launch.Check(rank)) << launch.Describe();
      }
    }
  }
}

// Each is a turn of all ranks where they share cores.
TEST(UcxCollectivesTest, AHostGathersInTheFewestRoundsThatItsMessagesAllow) {
  const std::map<int, size_t> rounds_of = {
      {2, 1},  {8, 1},  {9, 1},  {10, 2},  {16, 2},  {25, 2},
      {36, 2}, {37, 3}, {64, 3}, {100, 3}, {101, 4}, {256, 4}};
  for (const auto& [size, rounds] : rounds_of) {
    const Layout layout(std::vector<int>(static_cast<size_t>(size)));
    const Operation operation =
        BuiltByRank0(ucx::kTree, layout, COMMSCHED_ALL_GATHER, /*count=*/1);
    EXPECT_EQ(operation.steps.size(), rounds) << size << " ranks";
  }
}

// Of a kind that goes by levels.
Shape RandomLevelsShape(int size, Random& random) {
  for (;;) {
    Shape shape = RandomShape(size, random);
    commsched_launch_t launch = {};
    launch.kind = shape.kind;
    const Layout layout(std::vector<int>(static_cast<size_t>(size)));
    if (ucx::kLevels.fits(ucx::ShapeOf(launch, size), layout)) return shape;
  }
}

TEST(UcxCollectivesTest, SmallMembersAmongLargeOnesTravelAsOneByLevels) {
  int num_mixed = 0;
  ucx::ChoiceOptions options;
  options.forced = &ucx::kLevels;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    std::vector<int> hosts = RandomHosts(random);
    hosts.resize(1 + hosts.size() % 6);
    const Shape shape =
        RandomLevelsShape(static_cast<int>(hosts.size()), random);
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < 2 + random() % 8; ++m) {
      const uint64_t most = random() % 4 == 0 ? 80'000 : 300;
      members.push_back(RandomMember(shape, most, random));
      if (members.back().counts.empty()) members.back().gap = random() % 3;
    }
    CollectiveCase launch(shape, members, random() % 2 == 0,
                          /*deterministic=*/true, random);
    for (int rank = 0; rank < shape.size; ++rank) launch.Reset(rank);
    options.chunk_bytes = random() % 2 == 0 ? 4096 : 1 << 20;
    BuiltJob job(hosts, options, [&](int rank) -> const commsched_launch_t& {
      return launch.launch(rank);
    });
    ASSERT_TRUE(job.Run(random)) << "seed " << seed;
    for (int rank = 0; rank < shape.size; ++rank) {
      ASSERT_OK(launch.Check(rank)) << "seed " << seed << ", hosts "
                                    << Text(hosts) << ": " << launch.Describe();
    }
    const uint32_t num_arrays =
        ucx::ShapeOf(launch.launch(0), shape.size).num_arrays;
    num_mixed += num_arrays > 1 && num_arrays < members.size() ? 1 : 0;
  }
  EXPECT_GE(num_mixed, 10);
}

TEST(UcxCollectivesTest, ManySmallMembersTakeTheMessagesOfOneByLevels) {
  const Layout layout({0, 0, 0, 0, 1, 1, 1, 1});
  for (const commsched_collective_t kind :
       {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE, COMMSCHED_BROADCAST,
        COMMSCHED_ALL_GATHER, COMMSCHED_REDUCE_SCATTER}) {
    const Operation many = BuiltByRank0(ucx::kLevels, layout, kind, 1000,
                                        /*num_members=*/64);
    const Operation one = BuiltByRank0(ucx::kLevels, layout, kind, 64'000);
    EXPECT_EQ(many.messages.size(), one.messages.size()) << "kind " << kind;
  }
}

TEST(UcxCollectivesTest, WhatWasMeasuredHasRoomForLaunchesWithSmallerCounts) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::vector<int> hosts = RandomHosts(random);
    const Layout layout(hosts);
    const Shape shape = RandomLevelsShape(layout.size(), random);
    std::vector<commsched_member_t> members(2 + random() % 6);
    for (commsched_member_t& member : members) {
      member.count = random() % (random() % 2 == 0 ? 1000 : 1'000'000);
    }
    commsched_launch_t launch = {};
    launch.kind = shape.kind;
    launch.num_members = static_cast<uint32_t>(members.size());
    launch.members = members.data();
    const int rank = static_cast<int>(random() % hosts.size());
    const ucx::LaunchTask task = {launch, layout, rank, 1 << 16,
                                  /*measures=*/true};
    Operation operation;
    operation.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
    const uint64_t scratch_bytes = ucx::Measure(task, &operation);
    const Room room = RoomOf(operation);
    for (int i = 0; i < 4; ++i) {
      for (commsched_member_t& member : members) {
        member.count =
            random() % 3 == 0 ? member.count : random() % (member.count + 1);
      }
      EXPECT_LE(ucx::ScratchBytes(ucx::kLevels, task, &operation),
                scratch_bytes);
      ucx::Build(ucx::kLevels, task, &operation);
      EXPECT_EQ(RoomOf(operation), room)
          << "seed " << seed << ", kind " << launch.kind << ", hosts "
          << Text(hosts);
    }
  }
}

// Whatever is chosen for them.
TEST(UcxCollectivesTest, WhatWasMeasuredHasScratchForAnySmallerLaunch) {
  const std::vector<std::vector<int>> layouts = {
      std::vector<int>(16, 0), {0, 0, 0, 1}, [] {
        std::vector<int> apart(64);
        for (size_t i = 0; i < apart.size(); ++i)
          apart[i] = static_cast<int>(i);
        return apart;
      }()};
  for (const std::vector<int>& hosts : layouts) {
    const Layout layout(hosts);
    ucx::Choices choices(layout, {});
    for (const commsched_collective_t kind :
         {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
          COMMSCHED_BROADCAST, COMMSCHED_REDUCE}) {
      commsched_member_t member = {};
      member.count = kind == COMMSCHED_ALL_GATHER ? 16'384 : 960'000;
      commsched_launch_t launch = {};
      launch.kind = kind;
      launch.dtype = COMMSCHED_F32;
      launch.num_members = 1;
      launch.members = &member;
      const ucx::LaunchTask task = {launch, layout, /*rank=*/0, 1 << 20,
                                    /*measures=*/true};
      Operation operation;
      operation.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
      const uint64_t scratch_bytes = ucx::Measure(task, &operation);
      const Room room = RoomOf(operation);
      for (member.count -= 1; member.count > 0;
           member.count -= 1 + member.count / 7) {
        const ucx::Algorithm& chosen = *choices.Of(launch).algorithm;
        EXPECT_LE(ucx::ScratchBytes(chosen, task, &operation), scratch_bytes)
            << chosen.name << ", kind " << kind << ", " << member.count;
        ucx::Build(chosen, task, &operation);
        EXPECT_EQ(RoomOf(operation), room)
            << chosen.name << ", kind " << kind << ", " << member.count;
      }
    }
  }
}

// Then whoever gets nothing has to ask all ranks who is late.
TEST(UcxCollectivesTest, WhetherOthersHandOnDependsOnTheAlgorithm) {
  const auto hands_on = [](const std::vector<int>& hosts,
                           const ucx::Algorithm& algorithm) {
    return BuiltByRank0(algorithm, Layout(hosts), COMMSCHED_BROADCAST, 100)
        .hands_on;
  };
  EXPECT_FALSE(hands_on({0, 1, 2}, ucx::kExchange));
  EXPECT_TRUE(hands_on({0, 0, 0}, ucx::kTree));
  EXPECT_FALSE(hands_on({0, 0, 0}, ucx::kLevels));
  EXPECT_TRUE(hands_on({0, 0, 1}, ucx::kLevels));
}

TEST(UcxCollectivesTest, AResultDoesNotOverwriteAnInputThatStillGoesOut) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::vector<int> layouts[] = {
        {0, 1}, {0, 0}, {0, 1, 2, 3}, {0, 1, 0}};
    const std::vector<int>& hosts = layouts[seed % 4];
    Shape shape;
    shape.kind =
        random() % 2 == 0 ? COMMSCHED_ALL_REDUCE : COMMSCHED_REDUCE_SCATTER;
    shape.size = static_cast<int>(hosts.size());
    MemberCase member;
    member.count = 5;
    CollectiveCase launch(shape, {member}, /*in_place=*/true,
                          /*deterministic=*/true, random);
    for (const ucx::Algorithm* const forced : ucx::kAlgorithms) {
      if (forced == &ucx::kBruck) continue;  // All-to-alls only.
      for (int rank = 0; rank < shape.size; ++rank) launch.Reset(rank);
      ucx::ChoiceOptions options;
      options.forced = forced;
      BuiltJob job(hosts, options, [&](int rank) -> const commsched_launch_t& {
        return launch.launch(rank);
      });
      ASSERT_EQ(&job.algorithm(), forced);
      ASSERT_TRUE(job.Run(random));
      for (int rank = 0; rank < shape.size; ++rank) {
        ASSERT_OK(launch.Check(rank)) << forced->name << ", seed " << seed;
      }
    }
  }
}

TEST(UcxCollectivesTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  Random random(1);
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_BARRIER;
  for (int i = 0; i < 100; ++i) {
    std::vector<int> hosts = RandomHosts(random);
    if (i % 4 == 0) std::fill(hosts.begin(), hosts.end(), 0);
    ucx::ChoiceOptions options;
    options.forced = i % 2 == 0 ? &ucx::kTree : &ucx::kExchange;
    const auto launch_of = [&](int) -> const commsched_launch_t& {
      return launch;
    };
    EXPECT_TRUE(BuiltJob(hosts, options, launch_of).Run(random)) << Text(hosts);
    const auto size = static_cast<int>(hosts.size());
    const int late = static_cast<int>(random() % hosts.size());
    BuiltJob job(hosts, options, launch_of);
    job.Run(random, late);
    for (int rank = 0; rank < size && size > 1; ++rank) {
      if (rank == late) continue;
      EXPECT_FALSE(job.operation(rank).IsDone())
          << "rank " << rank << " without " << late << ", hosts "
          << Text(hosts);
    }
  }
}

struct SmallLaunch {
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  uint64_t elements;  // Of the array, or of all parts.
};

// Of the rank of `ranks` that has most.
int64_t MostMessages(const Layout& layout, const std::vector<int>& ranks,
                     const SmallLaunch& small, Operation* operation) {
  const bool has_parts = small.kind == COMMSCHED_ALL_GATHER ||
                         small.kind == COMMSCHED_REDUCE_SCATTER;
  commsched_member_t member = {};
  member.count = has_parts ? small.elements / layout.size() : small.elements;
  commsched_launch_t launch = {};
  launch.kind = small.kind;
  launch.dtype = small.dtype;
  launch.num_members = small.kind == COMMSCHED_BARRIER ? 0 : 1;
  launch.members = &member;
  launch.root =
      small.kind == COMMSCHED_REDUCE ? layout.size() - 1 : layout.size() / 2;
  const ucx::Algorithm& algorithm =
      *ucx::Choices(layout, {}).Of(launch).algorithm;
  operation->scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
  int64_t most = 0;
  for (const int rank : ranks) {
    ucx::Build(algorithm, {launch, layout, rank, 1 << 20, /*measures=*/true},
               operation);
    int64_t messages = 0;
    for (const ucx::Message& message : operation->messages) {
      const bool is_offered =
          layout.ShareHost(rank, message.peer) &&
          message.bytes >= ucx::OfferedBytes(layout.num_hosts());
      messages += is_offered ? 2 : 1;
    }
    most = std::max(most, messages);
  }
  return most;
}

// All of few, of many those that have most to do in trees, and some.
std::vector<int> LookedAt(int size, Random& random) {
  std::vector<int> ranks;
  if (size <= 40) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    return ranks;
  }
  for (int bit = 1; bit < size; bit *= 2) ranks.push_back(bit);
  for (const int rank : {0, 3, size / 2, size - 2, size - 1}) {
    ranks.push_back(rank);
  }
  for (int i = 0; i < 6; ++i) {
    ranks.push_back(static_cast<int>(random() % static_cast<uint64_t>(size)));
  }
  return ranks;
}

// Of up to 16 ranks per host: in a row, round robin, anyhow.
std::vector<int> RandomHostsOf(int size, Random& random) {
  const int per_host = 1 + static_cast<int>(random() % 16);
  const int num_hosts = (size + per_host - 1) / per_host;
  const uint64_t way = random() % 3;
  std::vector<int> places;
  for (int rank = 0; rank < size; ++rank) places.push_back(rank);
  if (way == 2) std::shuffle(places.begin(), places.end(), random);
  std::vector<int> hosts;
  for (const int place : places) {
    hosts.push_back(way == 1 ? place % num_hosts : place / per_host);
  }
  return hosts;
}

void ExpectFewMessages(const std::vector<int>& hosts, Random& random,
                       Operation* operation) {
  const Layout layout(hosts);
  const int size = layout.size();
  const std::vector<int> ranks = LookedAt(size, random);
  for (const SmallLaunch& small : std::initializer_list<SmallLaunch>{
           {COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1 << 12},
           {COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1 << 13},
           {COMMSCHED_REDUCE, COMMSCHED_F32, 1},
           {COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 1 << 12},
           {COMMSCHED_ALL_GATHER, COMMSCHED_F32, 1 << 12},
           {COMMSCHED_BROADCAST, COMMSCHED_F32, 1 << 12},
           {COMMSCHED_BARRIER, COMMSCHED_F32, 0}}) {
    EXPECT_LE(MostMessages(layout, ranks, small, operation),
              ucx::MostSmallMessages(size))
        << size << " ranks, kind " << small.kind << ", hosts "
        << (size <= 130 ? Text(hosts) : "");
  }
}

TEST(UcxCollectivesTest, SmallLaunchesTakeLog2OfAnyRanksMessages) {
  Random random(1);
  Operation operation;
  std::vector<int> sizes;
  for (int size = 1; size <= 130; ++size) sizes.push_back(size);
  for (int size = 256; size <= 4096; size *= 2) {
    for (const int near : {-1, 0, 1}) {
      if (size + near <= 4096) sizes.push_back(size + near);
    }
  }
  for (int i = 0; i < 10; ++i) {
    sizes.push_back(131 + static_cast<int>(random() % 3965));
  }
  for (const int size : sizes) {
    ExpectFewMessages(RandomHostsOf(size, random), random, &operation);
    if (size > 300) continue;  // One host has no more.
    ExpectFewMessages(std::vector<int>(static_cast<size_t>(size)), random,
                      &operation);
  }
}

TEST(UcxCollectivesTest, PeersAreThoseThatMessagesGoToAndComeFrom) {
  const Layout layout({0, 0, 1, 1});
  commsched_member_t member = {};
  member.count = 4;
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_ALL_REDUCE;
  launch.num_members = 1;
  launch.members = &member;
  const auto peers_of = [&](int rank) {
    Operation operation;
    ucx::Measure({launch, layout, rank, 1 << 20}, &operation);
    ucx::Build(ucx::kTree, {launch, layout, rank, 1 << 20, /*measures=*/true},
               &operation);
    std::vector<bool> peers(4);
    ucx::MarkPeers(operation, &peers);
    return peers;
  };
  EXPECT_EQ(peers_of(0), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(peers_of(3), (std::vector<bool>{false, false, true, false}));
}

// What the busiest direction of a link carries, in units of the array's bytes.
struct LinkCase {
  const char* hosts;
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  double least;
};

std::vector<int> HostsOf(const std::string& text) {
  std::vector<int> hosts;
  for (const char c : text) hosts.push_back(c - '0');
  return hosts;
}

// Counts of parts of the array of a kind with parts, else of the array.
uint64_t CountOf(const LinkCase& link, uint64_t array_bytes) {
  const uint64_t elements = array_bytes / ElementBytes(link.dtype);
  const bool has_parts = link.kind == COMMSCHED_ALL_GATHER ||
                         link.kind == COMMSCHED_REDUCE_SCATTER ||
                         link.kind == COMMSCHED_ALL_TO_ALL;
  return has_parts ? elements / std::string(link.hosts).size() : elements;
}

// By hand, from how many pieces cover the ranks of a host: with p of them of
// the others' results going out, and results coming in, shares are equal where
// the hosts are, and else such that no direction carries more than another.
constexpr LinkCase kLinkCases[] = {
    // Four hosts of one rank, two of two, two of four.
    {"0123", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1.5},
    {"0011", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1},
    {"00001111", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1},
    {"0123", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.75},
    {"0011", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.5},
    {"00001111", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.5},
    {"0123", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.75},
    {"0011", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.5},
    {"00001111", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.5},
    {"0123", COMMSCHED_ALL_TO_ALL, COMMSCHED_F32, 0.75},
    {"00001111", COMMSCHED_ALL_TO_ALL, COMMSCHED_F32, 2},
    {"0123", COMMSCHED_BROADCAST, COMMSCHED_F32, 1},
    {"00001111", COMMSCHED_BROADCAST, COMMSCHED_F32, 1},
    {"0123", COMMSCHED_REDUCE, COMMSCHED_F32, 1},
    {"00001111", COMMSCHED_REDUCE, COMMSCHED_F32, 1},
    // A host's three ranks are two nodes: of each byte of the other's half two
    // go out, and of its own one comes in.
    {"000111", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1.5},
    {"000111", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 1},
    // All of it on the greater host.
    {"0001", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1},
    {"0001", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.75},
    {"0001", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.75},
    {"00001122", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 4.0 / 3},
    // One host sends half of its four parts straight to both others, and the
    // rest to one of them each; those get six parts.
    {"00001122", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.75},
    {"00001122", COMMSCHED_REDUCE, COMMSCHED_F32, 1},
    // Round robin: no host has a node of two.
    {"0101", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1.5},
    {"01010101", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 2.5},
    {"01010101", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.5},
    // Sums of 16 bits travel in 32.
    {"0011", COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1.5},
    {"00001111", COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1.5},
    {"0123", COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1.5},
};

TEST(UcxCollectivesTest, TheBusiestLinkCarriesTheLeastThatThereIs) {
  constexpr uint64_t kArrayBytes = 1 << 18;
  ucx::ChoiceOptions options;
  options.chunk_bytes = 1 << 14;
  options.forced = &ucx::kLevels;
  options.or_by_cost = true;
  for (const LinkCase& link : kLinkCases) {
    Random random(1);
    Shape shape;
    shape.kind = link.kind;
    shape.dtype = link.dtype;
    shape.size = static_cast<int>(std::string(link.hosts).size());
    MemberCase member;
    member.count = CountOf(link, kArrayBytes);
    const CollectiveCase launch(shape, {member},
                                /*in_place=*/false, /*deterministic=*/true,
                                random);
    BuiltJob job(HostsOf(link.hosts), options,
                 [&](int rank) -> const commsched_launch_t& {
                   return launch.launch(rank);
                 });
    ASSERT_TRUE(job.Run(random));
    EXPECT_NEAR(static_cast<double>(job.BusiestLink()) / kArrayBytes,
                link.least, 0.01 * link.least)
        << "hosts " << link.hosts << ", kind " << link.kind << ", dtype "
        << link.dtype;
  }
}

// The largest message of rank 0 for an array of so many MiB.
uint64_t LargestMessage(const std::vector<int>& hosts,
                        commsched_collective_t kind, uint64_t mib = 16) {
  const Operation operation =
      BuiltByRank0(ucx::kLevels, Layout(hosts), kind, mib << 18);
  uint64_t most = 0;
  for (const ucx::Message& message : operation.messages) {
    most = std::max(most, message.bytes);
  }
  return most;
}

// Where a host's link waits until each owner has got a chunk, all of these are
// a sixteenth of the array.
TEST(UcxCollectivesTest, ChunksAreSmallerWhereLinksWaitForThem) {
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 2, 2};
  EXPECT_EQ(LargestMessage(hosts, COMMSCHED_ALL_REDUCE), 128u << 10);
  // Of the host of the root nobody owns anything.
  EXPECT_EQ(LargestMessage(hosts, COMMSCHED_REDUCE), 256u << 10);
  EXPECT_EQ(LargestMessage(hosts, COMMSCHED_BROADCAST), 256u << 10);
  const std::vector<int> two_hosts = {0, 0, 1, 1};
  EXPECT_EQ(LargestMessage(two_hosts, COMMSCHED_ALL_REDUCE), 1u << 20);
  EXPECT_EQ(LargestMessage(two_hosts, COMMSCHED_REDUCE), 1u << 20);
  EXPECT_EQ(LargestMessage(two_hosts, COMMSCHED_BROADCAST), 1u << 20);
}

// On more than two hosts the sends of two ranks meet at a third one's link.
TEST(UcxCollectivesTest, ChunksAreSmallWhereSendsMeet) {
  const std::vector<int> hosts = {0, 0, 1, 1, 2, 2};
  const std::vector<int> alone = {0, 1, 2};
  for (const commsched_collective_t kind :
       {COMMSCHED_ALL_REDUCE, COMMSCHED_BROADCAST}) {
    EXPECT_EQ(LargestMessage(hosts, kind, 64), 256u << 10);
    EXPECT_EQ(LargestMessage(alone, kind, 64), 128u << 10);
    EXPECT_EQ(LargestMessage({0, 0, 1, 1}, kind, 64), 1u << 20);
  }
}

uint64_t NumRelayed(const Operation& operation) {
  return static_cast<uint64_t>(
      std::count_if(operation.messages.begin(), operation.messages.end(),
                    [](const ucx::Message& message) {
                      return message.phase == ucx::kRelayed;
                    }));
}

// Parts of any counts on any hosts: each host gets what it has not, and none
// sends more than the most that one has to get, or has.
TEST(UcxCollectivesTest, UnevenPartsAreGatheredWithTheLeastOfEachLink) {
  int num_relayed = 0;
  ucx::ChoiceOptions options;
  options.forced = &ucx::kLevels;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    std::vector<int> hosts = RandomHosts(random);
    hosts.resize(std::min<size_t>(hosts.size(), 10));
    Shape shape;
    shape.kind = COMMSCHED_ALL_GATHER;
    shape.dtype = COMMSCHED_F32;
    shape.size = static_cast<int>(hosts.size());
    std::vector<MemberCase> members(1 + random() % 2);
    const Layout layout(hosts);
    std::vector<uint64_t> own(layout.num_hosts());
    uint64_t all = 0;
    for (MemberCase& member : members) {
      for (int rank = 0; rank < shape.size; ++rank) {
        const uint64_t count = random() % (random() % 2 == 0 ? 300 : 90'000);
        member.counts.push_back(count);
        own[layout.HostOf(rank)] += count * 4;
        all += count * 4;
      }
    }
    uint64_t least = 0;
    for (const uint64_t bytes : own) {
      least = std::max({least, bytes, all - bytes});
    }
    options.chunk_bytes = random() % 2 == 0 ? 1 << 14 : 1 << 20;
    CollectiveCase launch(shape, members, random() % 2 == 0,
                          /*deterministic=*/true, random);
    BuiltJob job(hosts, options, [&](int rank) -> const commsched_launch_t& {
      return launch.launch(rank);
    });
    ASSERT_TRUE(job.Run(random)) << "seed " << seed;
    bool is_relayed = false;
    for (int rank = 0; rank < shape.size; ++rank) {
      ASSERT_OK(launch.Check(rank)) << "seed " << seed;
      is_relayed |= NumRelayed(job.operation(rank)) != 0;
    }
    num_relayed += is_relayed ? 1 : 0;
    if (layout.num_hosts() < 2) continue;
    // Below that much nothing is relayed, nor what is too small for a part, and
    // no part is cut to one.
    const uint64_t not_worthwhile = std::max<uint64_t>(64 << 10, least / 16) +
                                    members.size() * (layout.num_hosts() - 2) *
                                        (layout.most_ranks_per_host() + 2) *
                                        ucx::Relays::kLeastPartBytes;
    EXPECT_LE(job.BusiestLink(), least + not_worthwhile)
        << "seed " << seed << ", hosts " << Text(hosts);
    EXPECT_GE(job.BusiestLink(), least - 64 * hosts.size());
  }
  EXPECT_GE(num_relayed, 15);
}

TEST(UcxCollectivesTest, ScratchIsBoundedWhereOneRankHasAllParts) {
  std::vector<int> hosts(256);
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i] = static_cast<int>(i);
  const Layout layout(hosts);
  std::vector<uint64_t> counts(hosts.size());
  counts[0] = 131'072;
  commsched_member_t member = {};
  member.counts = counts.data();
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_REDUCE_SCATTER;
  launch.dtype = COMMSCHED_F32;
  launch.num_members = 1;
  launch.members = &member;
  Operation operation;
  EXPECT_LE(ucx::ScratchBytes(*ucx::Choices(layout, {}).Of(launch).algorithm,
                              {launch, layout, 0, 1 << 20}, &operation),
            uint64_t{64} << 20);
}

TEST(UcxCollectivesTest, ScratchIsBoundedWhateverALaunchHas) {
  constexpr uint64_t kMostBytes = 64 << 20;
  const std::vector<int> widths = {4, 64, 1024};
  for (const int size : widths) {
    for (const int per_host : {1, 4, 16}) {
      std::vector<int> hosts;
      for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / per_host);
      const Layout layout(hosts);
      for (const commsched_collective_t kind :
           {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE}) {
        commsched_member_t member = {};
        member.count = uint64_t{1} << 28;  // 1 GiB
        commsched_launch_t launch = {};
        launch.kind = kind;
        launch.dtype = COMMSCHED_F32;
        launch.num_members = 1;
        launch.members = &member;
        Operation operation;
        const auto scratch_bytes = [&] {
          return ucx::ScratchBytes(
              *ucx::Choices(layout, {}).Of(launch).algorithm,
              {launch, layout, size / 2, 1 << 20}, &operation);
        };
        EXPECT_LE(scratch_bytes(), kMostBytes)
            << size << " ranks, " << per_host << " per host, kind " << kind;
        // Small members behind it, more than are packed.
        std::vector<commsched_member_t> members(5000, member);
        for (commsched_member_t& each : members) each.count = 1000;
        members[0].count = member.count;
        launch.members = members.data();
        launch.num_members = static_cast<uint32_t>(members.size());
        EXPECT_LE(scratch_bytes(), kMostBytes)
            << size << " ranks, " << per_host << " per host, kind " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace commsched

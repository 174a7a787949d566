// Which algorithm a launch of `ucx` takes.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/choice.h"
#include "plugins/ucx/algorithms/collectives.h"

namespace commsched {
namespace {

using ucx::Choice;
using ucx::ChoiceOptions;
using ucx::Choices;
using ucx::Layout;
using ucx::LinkLevel;

constexpr commsched_collective_t kKinds[] = {
    COMMSCHED_ALL_REDUCE, COMMSCHED_ALL_GATHER, COMMSCHED_REDUCE_SCATTER,
    COMMSCHED_BROADCAST,  COMMSCHED_REDUCE,     COMMSCHED_BARRIER};

ChoiceOptions WithLinks(const LinkLevel& host, const LinkLevel& network) {
  ChoiceOptions options;
  options.links.host = host;
  options.links.network = network;
  return options;
}

ChoiceOptions Reading(const std::string& value) {
  ChoiceOptions options;
  const Outcome outcome = ucx::ReadAlgorithm(value, &options);
  EXPECT_TRUE(outcome.ok()) << outcome.reason;
  return options;
}

Layout HostsOf(int size, int per_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / per_host);
  return Layout(hosts);
}

// Of floats, in one array or in equal parts of all ranks.
struct OneMember {
  OneMember(const Layout& layout, commsched_collective_t kind,
            uint64_t elements) {
    const bool has_parts = kind == COMMSCHED_ALL_GATHER ||
                           kind == COMMSCHED_REDUCE_SCATTER ||
                           kind == COMMSCHED_ALL_TO_ALL;
    member.count = has_parts ? elements / layout.size() : elements;
    launch.kind = kind;
    launch.num_members = 1;
    launch.members = &member;
  }
  OneMember(const OneMember&) = delete;
  OneMember& operator=(const OneMember&) = delete;

  commsched_member_t member = {};
  commsched_launch_t launch = {};
};

Choice Choose(const Layout& layout, commsched_collective_t kind,
              uint64_t elements, const ChoiceOptions& options = {}) {
  const OneMember one(layout, kind, elements);
  return Choices(layout, options).Of(one.launch);
}

std::string NameOf(const Layout& layout, commsched_collective_t kind,
                   uint64_t elements, const ChoiceOptions& options = {}) {
  return Choose(layout, kind, elements, options).algorithm->name;
}

TEST(UcxChoiceTest, SmallLaunchesOfManyRanksGoByTheTreeWhateverLinksCost) {
  const ChoiceOptions all_options[] = {
      {},
      WithLinks({1, 1e12, 1}, {1, 1e12, 1}),
      WithLinks({1'000'000, 1e6, 0}, {1'000'000, 1e6, 0})};
  for (const ChoiceOptions& options : all_options) {
    for (const commsched_collective_t kind : kKinds) {
      if (kind == COMMSCHED_REDUCE || kind == COMMSCHED_BROADCAST) continue;
      for (const uint64_t elements : {0, 1, 4096}) {
        EXPECT_EQ(NameOf(HostsOf(64, 1), kind, elements, options), "tree");
        EXPECT_EQ(NameOf(HostsOf(4095, 16), kind, elements, options), "tree");
      }
    }
  }
}

TEST(UcxChoiceTest, LargeLaunchesGoByLevels) {
  for (const commsched_collective_t kind : kKinds) {
    if (kind == COMMSCHED_BARRIER) continue;
    for (const int size : {2, 3, 16, 1024}) {
      EXPECT_EQ(NameOf(HostsOf(size, 1), kind, 1 << 24), "levels");
      EXPECT_EQ(NameOf(HostsOf(size, 4), kind, 1 << 24), "levels");
    }
  }
}

TEST(UcxChoiceTest, SumsOfAHostGoByLevelsFrom64KiBOn) {
  const Layout layout = HostsOf(4, 4);
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1 << 10), "exchange");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1 << 14), "levels");
}

TEST(UcxChoiceTest, FewRanksOfAHostGatherStraight) {
  for (const commsched_collective_t kind :
       {COMMSCHED_ALL_GATHER, COMMSCHED_BARRIER}) {
    const uint64_t elements = kind == COMMSCHED_BARRIER ? 0 : 1 << 10;
    for (int size = 2; size <= 9; ++size) {
      EXPECT_EQ(NameOf(HostsOf(size, size), kind, elements), "exchange");
    }
    for (const int size : {10, 16, 64}) {
      EXPECT_EQ(NameOf(HostsOf(size, size), kind, elements), "tree");
    }
  }
  // Copying them out takes longer than messages.
  constexpr uint64_t kLarge = 1 << 16;
  EXPECT_EQ(NameOf(HostsOf(16, 16), COMMSCHED_ALL_GATHER, kLarge), "exchange");
  EXPECT_EQ(NameOf(HostsOf(64, 64), COMMSCHED_ALL_GATHER, kLarge), "tree");
}

// More than a chunk UCX would ask for first, and the reply would wait behind
// what goes the other way.
TEST(UcxChoiceTest, NoMessageByLevelsIsLargerThanAChunk) {
  constexpr uint64_t kChunkBytes = 1 << 20;
  for (const commsched_dtype_t dtype : {COMMSCHED_F32, COMMSCHED_BF16}) {
    for (const commsched_collective_t kind : kKinds) {
      if (kind == COMMSCHED_BARRIER) continue;
      const Layout layout = HostsOf(4, 2);
      OneMember one(layout, kind, 1 << 23);
      one.launch.dtype = dtype;
      const ucx::Algorithm* const algorithm =
          Choices(layout, {}).Of(one.launch).algorithm;
      ASSERT_STREQ(algorithm->name, "levels");
      ucx::Operation operation;
      algorithm->build({.launch = one.launch,
                        .layout = layout,
                        .rank = 1,
                        .chunk_bytes = kChunkBytes,
                        .measures = true},
                       &operation);
      ASSERT_FALSE(operation.messages.empty());
      for (const ucx::Message& message : operation.messages) {
        EXPECT_LE(message.bytes, kChunkBytes)
            << "kind " << kind << ", type " << dtype;
      }
    }
  }
}

TEST(UcxChoiceTest, AllToAllIsExchangedWhateverItsSize) {
  for (const uint64_t elements : {0, 1 << 10, 1 << 26}) {
    EXPECT_EQ(NameOf(HostsOf(64, 4), COMMSCHED_ALL_TO_ALL, elements),
              "exchange");
  }
}

TEST(UcxChoiceTest, OtherCostsFlipAChoice) {
  const Layout layout = HostsOf(8, 1);
  const LinkLevel host = ucx::DefaultLinkProfile().host;
  const ChoiceOptions far = WithLinks(host, {10'000'000, 1e10, 1'000});
  const ChoiceOptions slow = WithLinks(host, {1'000, 1e6, 1'000});
  // One hop with everything, or two with little.
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 8 << 10, far), "exchange");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 8 << 10, slow), "levels");
}

TEST(UcxChoiceTest, WhatIsForcedOrByCostIsTakenWhereItFits) {
  const Layout layout = HostsOf(4, 2);
  ChoiceOptions options = Reading("tree,auto");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1 << 16, options), "tree");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1 << 17, options), "levels");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_TO_ALL, 1, options), "exchange");
  options = Reading("levels,auto");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1, options), "levels");
  options = Reading("exchange,auto");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1 << 13, options), "exchange");
  EXPECT_EQ(NameOf(layout, COMMSCHED_ALL_REDUCE, 1 << 15, options), "levels");
}

TEST(UcxChoiceTest, WhatAForcedAlgorithmDoesNotFitIsRefusedByName) {
  const Layout layout = HostsOf(4, 2);
  Choices choices(layout, Reading("tree"));
  const OneMember small(layout, COMMSCHED_ALL_REDUCE, 1 << 16);
  EXPECT_TRUE(choices.Check(small.launch).ok());
  const OneMember large(layout, COMMSCHED_ALL_REDUCE, 1 << 17);
  EXPECT_EQ(choices.Check(large.launch).code, COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(
      choices.Check(large.launch).reason,
      "all-reduce of 524288 bytes on 4 ranks: algorithm=tree does all "
      "but all-to-all and sends, up to 256 KiB and 1 MiB of partial sums; "
      "algorithm=tree,auto does the rest by cost");
  const OneMember barrier(layout, COMMSCHED_BARRIER, 0);
  EXPECT_NE(Choices(layout, Reading("levels"))
                .Check(barrier.launch)
                .reason.find("barrier of 0 bytes"),
            std::string::npos);
}

TEST(UcxChoiceTest, AnUnknownAlgorithmIsAnErrorThatNamesIt) {
  EXPECT_EQ(Reading("auto").forced, nullptr);
  EXPECT_EQ(Reading("tree").forced, &ucx::kTree);
  EXPECT_FALSE(Reading("tree").or_by_cost);
  for (const char* const value :
       {"", "ring", "Tree", "tree,", "tree,levels", "auto,auto", "ring,auto"}) {
    ChoiceOptions options;
    const Outcome outcome = ucx::ReadAlgorithm(value, &options);
    EXPECT_EQ(outcome.code, COMMSCHED_INVALID_ARGUMENT) << value;
    EXPECT_EQ(outcome.reason,
              "configuration: algorithm is '" + std::string(value) +
                  "', not one of auto, exchange, levels, bruck, tree, "
                  "or such as tree,auto");
  }
}

TEST(UcxChoiceTest, RanksThatWouldChooseOrBuildAnotherWaySayAnotherText) {
  std::set<std::string> texts = {Choices(HostsOf(4, 2), {}).Text()};
  for (const int per_host : {1, 3, 4}) {
    texts.insert(Choices(HostsOf(4, per_host), {}).Text());
  }
  ChoiceOptions chunks;
  chunks.chunk_bytes = 4096;
  const LinkLevel level = ucx::DefaultLinkProfile().host;
  LinkLevel other = level;
  ++other.message_ns;
  const std::vector<ChoiceOptions> others = {chunks,
                                             Reading("tree"),
                                             Reading("levels"),
                                             Reading("tree,auto"),
                                             WithLinks(level, level),
                                             WithLinks(other, level),
                                             WithLinks(level, other)};
  for (const ChoiceOptions& options : others) {
    texts.insert(Choices(HostsOf(4, 2), options).Text());
  }
  EXPECT_EQ(texts.size(), 11u);
  EXPECT_EQ(texts.count(Choices(HostsOf(4, 2), {}).Text()), 1u);
}

TEST(UcxChoiceTest, LargerLaunchesAreNotPredictedToBeFasterByAnAlgorithm) {
  for (const ucx::Algorithm* const algorithm : ucx::kAlgorithms) {
    ChoiceOptions options;
    options.forced = algorithm;
    for (const commsched_collective_t kind : kKinds) {
      for (const int per_host : {1, 3, 4}) {
        int64_t before_ns = 1;
        for (uint64_t elements = 1; elements < 1 << 26; elements *= 4) {
          const Choice choice =
              Choose(HostsOf(12, per_host), kind, elements * 12, options);
          if (choice.algorithm == nullptr) break;
          EXPECT_GE(choice.predicted_ns, before_ns)
              << algorithm->name << ", kind " << kind << ", " << elements;
          before_ns = choice.predicted_ns;
        }
      }
    }
  }
}

// All members of a launch are looked at together.
TEST(UcxChoiceTest, MembersAreOfOneSize) {
  const Layout layout = HostsOf(16, 4);
  commsched_member_t member = {};
  member.count = 1 << 12;
  const std::vector<commsched_member_t> members(64, member);
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_ALL_REDUCE;
  launch.num_members = 1;
  launch.members = members.data();
  Choices choices(layout, {});
  EXPECT_STREQ(choices.Of(launch).algorithm->name, "tree");
  launch.num_members = 64;
  EXPECT_STREQ(choices.Of(launch).algorithm->name, "levels");
}

TEST(UcxChoiceTest, WhatIsRememberedIsWhatWouldBeChosen) {
  const Layout layout = HostsOf(16, 4);
  Choices choices(layout, {});
  for (int round = 0; round < 2; ++round) {
    for (uint64_t count = 1; count < 2000; ++count) {
      commsched_member_t member = {};
      member.count = count * 64;
      commsched_launch_t launch = {};
      launch.kind = COMMSCHED_ALL_REDUCE;
      launch.num_members = 1;
      launch.members = &member;
      EXPECT_EQ(choices.Of(launch).predicted_ns,
                Choose(layout, COMMSCHED_ALL_REDUCE, count * 64).predicted_ns);
    }
  }
}

}  // namespace
}  // namespace commsched

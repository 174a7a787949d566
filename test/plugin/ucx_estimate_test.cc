// What `ucx` tells of a launch, beside what ranks build for it.
#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/choice.h"
#include "plugins/ucx/algorithms/collectives.h"

namespace commsched {
namespace {

using ucx::Algorithm;
using ucx::ChoiceOptions;
using ucx::Choices;
using ucx::Estimate;
using ucx::Layout;

using Hosts = std::vector<int>;

const Hosts kLayouts[] = {
    {0, 1, 2, 3},                          // 4x1
    {0, 0, 1, 1},                          // 2x2
    {0, 0, 0, 0, 1, 1, 1, 1},              // 2x4
    {0, 0, 0, 1, 1, 1},                    // 2x3
    {0, 0, 0, 1},                          // 3+1
    {0, 0, 0, 0, 1, 1, 2, 2},              // 4+2+2
    {0, 1, 0, 1},                          // 2x2, round robin
    {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5},  // 6x2
};
constexpr commsched_collective_t kEstimatedKinds[] = {
    COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
    COMMSCHED_ALL_TO_ALL, COMMSCHED_BROADCAST,      COMMSCHED_REDUCE,
    COMMSCHED_BARRIER};

// One member, in equal parts where the kind has parts. Nothing is there.
class EstimatedLaunch {
 public:
  EstimatedLaunch(const Layout& layout, commsched_collective_t kind,
                  uint64_t elements, commsched_dtype_t dtype = COMMSCHED_F32) {
    const bool has_parts = kind == COMMSCHED_ALL_GATHER ||
                           kind == COMMSCHED_REDUCE_SCATTER ||
                           kind == COMMSCHED_ALL_TO_ALL;
    member_.count =
        has_parts ? elements / static_cast<uint64_t>(layout.size()) : elements;
    member_.output = reinterpret_cast<void*>(uintptr_t{1} << 60);
    launch_.kind = kind;
    launch_.dtype = dtype;
    launch_.root = layout.size() / 2;
    launch_.num_members = kind == COMMSCHED_BARRIER ? 0 : 1;
    launch_.members = &member_;
  }
  EstimatedLaunch(const EstimatedLaunch&) = delete;
  EstimatedLaunch& operator=(const EstimatedLaunch&) = delete;

  const commsched_launch_t& launch() const { return launch_; }

 private:
  commsched_member_t member_ = {};
  commsched_launch_t launch_ = {};
};

// What the ranks build: over the busiest direction of a host's link, and of the
// rank with most messages.
struct Built {
  uint64_t link_bytes = 0;
  int64_t messages = 0;
};
Built BuiltOf(const Layout& layout, const Algorithm& algorithm,
              const commsched_launch_t& launch) {
  std::vector<uint64_t> out(static_cast<size_t>(layout.num_hosts()));
  std::vector<uint64_t> in(out.size());
  Built built;
  ucx::Operation operation;
  for (int rank = 0; rank < layout.size(); ++rank) {
    const ucx::LaunchTask task = {launch, layout, rank,
                                  ChoiceOptions().chunk_bytes,
                                  /*measures=*/true};
    (void)ucx::ScratchBytes(algorithm, task, &operation);
    operation.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
    ucx::Build(algorithm, task, &operation);
    built.messages = std::max(built.messages,
                              static_cast<int64_t>(operation.messages.size()));
    for (const ucx::Message& message : operation.messages) {
      if (layout.ShareHost(rank, message.peer)) continue;
      const auto host = static_cast<size_t>(layout.HostOf(rank));
      (message.is_receive ? in : out)[host] += message.bytes;
    }
  }
  built.link_bytes = std::max(*std::max_element(out.begin(), out.end()),
                              *std::max_element(in.begin(), in.end()));
  return built;
}

// What choices are made by.
ucx::Cost CostOf(const Layout& layout, const Algorithm& algorithm,
                 const commsched_launch_t& launch) {
  const ChoiceOptions options;
  const ucx::LaunchShape shape = ucx::ShapeOf(launch, layout.size());
  std::vector<ucx::HostLoad> loads(static_cast<size_t>(layout.num_hosts()));
  return algorithm.cost({.shape = shape,
                         .layout = layout,
                         .links = options.links,
                         .chunk_bytes = options.chunk_bytes,
                         .loads = &loads});
}

ChoiceOptions Forcing(const Algorithm* algorithm) {
  ChoiceOptions options;
  options.forced = algorithm;
  return options;
}

uint32_t PiecesOf(const Hosts& hosts, commsched_dtype_t dtype = COMMSCHED_F32,
                  commsched_collective_t kind = COMMSCHED_ALL_REDUCE) {
  const Layout layout(hosts);
  const EstimatedLaunch one(layout, kind, 8 << 20, dtype);
  return Choices(layout, Forcing(&ucx::kLevels))
      .EstimateOf(one.launch())
      .crossing.pieces;
}

TEST(UcxEstimateTest, BytesOverALinkAreThoseThatRanksBuild) {
  for (const Hosts& hosts : kLayouts) {
    const Layout layout(hosts);
    for (const Algorithm* const algorithm : ucx::kAlgorithms) {
      const Choices choices(layout, Forcing(algorithm));
      for (const commsched_collective_t kind : kEstimatedKinds) {
        for (const uint64_t elements : {48 * 8, 48 << 10, 48 << 16}) {
          const EstimatedLaunch one(layout, kind, elements);
          const Estimate told = choices.EstimateOf(one.launch());
          if (told.choice.algorithm == nullptr) continue;
          const uint64_t built =
              BuiltOf(layout, *algorithm, one.launch()).link_bytes;
          // Shares of hosts are of whole elements.
          EXPECT_NEAR(static_cast<double>(told.crossing.link_bytes),
                      static_cast<double>(built),
                      algorithm == &ucx::kLevels ? 16 : 0)
              << algorithm->name << ", kind " << kind << ", " << elements
              << " elements on " << layout.size() << " ranks and "
              << layout.num_hosts() << " hosts";
        }
      }
    }
  }
}

TEST(UcxEstimateTest, MessagesAreThoseOfTheRankWithMost) {
  for (const Hosts& hosts : kLayouts) {
    const Layout layout(hosts);
    for (const Algorithm* const algorithm : ucx::kAlgorithms) {
      const Choices choices(layout, Forcing(algorithm));
      for (const commsched_collective_t kind : kEstimatedKinds) {
        for (const uint64_t elements : {48 * 8, 48 << 10, 48 << 16}) {
          const EstimatedLaunch one(layout, kind, elements);
          const Estimate told = choices.EstimateOf(one.launch());
          if (told.choice.algorithm == nullptr) continue;
          const Built built = BuiltOf(layout, *algorithm, one.launch());
          EXPECT_EQ(told.messages, built.messages)
              << algorithm->name << ", kind " << kind << ", " << elements
              << " elements on " << layout.size() << " ranks";
          if (algorithm != &ucx::kExchange) continue;
          EXPECT_EQ(CostOf(layout, *algorithm, one.launch()).messages,
                    built.messages);
        }
      }
    }
  }
}

TEST(UcxEstimateTest, MessagesOfUnevenPartsAreThoseOfTheRankWithMost) {
  for (const Hosts& hosts : kLayouts) {
    const Layout layout(hosts);
    const auto n = static_cast<size_t>(layout.size());
    std::vector<uint64_t> small(n * n, 5);
    std::vector<uint64_t> large(n * n, 100);
    small[1] = large[1] = 1 << 20;     // From rank 0 to rank 1,
    large[2 * n + 1] = (1 << 19) + 1;  // and from rank 2.
    commsched_member_t members[3] = {};
    members[0].counts = small.data();
    members[1].counts = large.data();
    members[2].count = 1 << 18;
    commsched_launch_t launch = {};
    launch.kind = COMMSCHED_ALL_TO_ALL;
    launch.num_members = 3;
    launch.members = members;
    EXPECT_EQ(Choices(layout, {}).EstimateOf(launch).messages,
              BuiltOf(layout, ucx::kExchange, launch).messages);
  }
}

TEST(UcxEstimateTest, ItIsOfTheAlgorithmThatALaunchTakes) {
  for (const Hosts& hosts : kLayouts) {
    const Layout layout(hosts);
    Choices choices(layout, {});
    for (const commsched_collective_t kind : kEstimatedKinds) {
      for (const uint64_t elements : {48, 48 << 16}) {
        const EstimatedLaunch one(layout, kind, elements);
        const ucx::Choice choice = choices.Of(one.launch());
        const Estimate told = choices.EstimateOf(one.launch());
        EXPECT_EQ(told.choice.algorithm, choice.algorithm);
        EXPECT_EQ(told.choice.predicted_ns, choice.predicted_ns);
        EXPECT_GT(told.choice.predicted_ns, 0);
        EXPECT_GT(told.messages, 0);
      }
    }
  }
}

TEST(UcxEstimateTest, AHostWithAWholeNodeSendsOnePiece) {
  EXPECT_EQ(PiecesOf({0, 0, 1, 1}), 1u);
  EXPECT_EQ(PiecesOf({0, 0, 0, 0, 1, 1, 1, 1}), 1u);
  EXPECT_EQ(PiecesOf({0, 0, 1, 1}, COMMSCHED_BF16), 1u);
  EXPECT_EQ(PiecesOf({0, 1, 2, 3}), 1u);
}

TEST(UcxEstimateTest, OtherHostsSendAsManyAsCoverTheirRanks) {
  EXPECT_EQ(PiecesOf({0, 1, 0, 1}), 2u);
  EXPECT_EQ(PiecesOf({0, 1, 0, 1, 0, 1, 0, 1}), 4u);
  EXPECT_EQ(PiecesOf({0, 0, 0, 1}), 2u);  // Ranks 0 and 1, and 2.
  EXPECT_EQ(PiecesOf({0, 0, 0, 1}, COMMSCHED_BF16, COMMSCHED_REDUCE_SCATTER),
            2u);
}

TEST(UcxEstimateTest, WithoutSumsOrHostsThereAreNoPieces) {
  EXPECT_EQ(PiecesOf({0, 1, 0, 1}, COMMSCHED_F32, COMMSCHED_ALL_GATHER), 0u);
  const Layout layout({0, 0, 0});
  const EstimatedLaunch one(layout, COMMSCHED_ALL_REDUCE, 1 << 20);
  const Estimate told = Choices(layout, {}).EstimateOf(one.launch());
  EXPECT_EQ(told.crossing.pieces, 0u);
  EXPECT_EQ(told.crossing.link_bytes, 0u);
}

TEST(UcxEstimateTest, WhatIsRefusedHasNone) {
  const Layout layout({0, 1});
  const EstimatedLaunch large(layout, COMMSCHED_ALL_REDUCE, 1 << 20);
  const Choices choices(layout, Forcing(&ucx::kTree));
  const Estimate told = choices.EstimateOf(large.launch());
  EXPECT_EQ(told.choice.algorithm, nullptr);
  EXPECT_FALSE(choices.Refusal(large.launch(), told.choice).ok());
}

}  // namespace
}  // namespace commsched

// What test/support/random_step.h promises: that random steps contain what the
// flags ask for and can be planned, and that its reference is right.
#include "test/support/random_step.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/collective_shape.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/support/graph_builder.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched::test {
namespace {

using Kind = CollectiveKind;
using Values = std::vector<int64_t>;

TEST(RandomStepTest, FlagsAddWhatTheySay) {
  std::map<std::string, int> found;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStepLimits limits;
    limits.subgroups = limits.tiles = limits.late_bound = limits.peers =
        limits.uneven = limits.place_groups = true;
    const RandomStep step = MakeRandomStep(seed, limits);
    found["place group"] += step.graph.has_place_groups() ? 1 : 0;
    for (const auto& communicators : step.communicators) {
      found["subgroups"] += communicators.size() > 1 ? 1 : 0;
    }
    std::map<std::pair<GroupId, int>, int> open;  // sends less receives
    for (const Op& op : step.graph.ops()) {
      const bool collective = op.kind == OpKind::kCollective;
      for (const Access& access : op.accesses) {
        const bool tile = access.region.rows > 1;
        const bool late =
            step.graph.buffer(access.buffer).ownership == Ownership::kLateBound;
        found["tile of a collective"] += collective && tile ? 1 : 0;
        found["tile of a compute op"] += !collective && tile ? 1 : 0;
        found["late-bound collective"] += collective && late ? 1 : 0;
      }
      if (!collective) continue;
      const CollectiveSpec& spec = op.collective;
      if (!spec.counts.empty()) ++found["uneven"];
      const int n = step.graph.group(spec.group).size;
      const int to = ((spec.peer_offset % n) + n) % n;
      if (spec.kind == Kind::kSend) ++open[{spec.group, to}];
      if (spec.kind == Kind::kRecv) {
        ++found["ring"];
        --open[{spec.group, (n - to) % n}];
      }
    }
    for (const auto& [route, more] : open) {
      EXPECT_EQ(more, 0) << "seed " << seed;
    }
  }
  for (const char* what :
       {"subgroups", "tile of a collective", "tile of a compute op",
        "late-bound collective", "uneven", "ring", "place group"}) {
    EXPECT_GT(found[what], 30) << what;
  }
}

TEST(RandomStepTest, NothingOfThatComesUnasked) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomStep step = MakeRandomStep(seed, {});
    EXPECT_FALSE(step.graph.has_tiles());
    EXPECT_FALSE(step.graph.has_place_groups());
    for (const Buffer& buffer : step.graph.buffers()) {
      EXPECT_NE(buffer.ownership, Ownership::kLateBound);
    }
    for (const Op& op : step.graph.ops()) {
      EXPECT_FALSE(IsPointToPoint(op.collective.kind));
      EXPECT_TRUE(op.collective.counts.empty());
    }
  }
}

// Planning verifies every plan against the graph, by its own means.
TEST(RandomStepTest, StepsOfEveryKindArePlanned) {
  for (int i = 0, n = PropertyCases(2000); i < n; ++i) {
    const uint64_t seed = PropertySeed() + i;
    SCOPED_TRACE(DescribeSeed(seed));
    RandomStepLimits limits;
    limits.max_compute_lanes = 1 + seed % 3;
    limits.subgroups = limits.tiles = limits.uneven = true;
    limits.peers = seed % 2 == 0;
    limits.place_groups = seed % 3 == 0;
    const RandomStep step = MakeRandomStep(seed, limits);
    PlanOptions options;
    options.coalesce_bytes = seed % 4 * 300;
    options.max_launches_in_flight = seed % 5;
    options.num_comm_lanes = 1 + seed % 2;
    const auto plan = BuildPlan(step.graph, options, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
  }
}

// Two ranks and what the test adds.
class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    step_.num_ranks = 2;
    dp_ = *step_.graph.AddGroup("dp", 2);
    step_.communicators = {{{0, 1}}};
  }
  BufferId Add(uint64_t count, Ownership ownership = Ownership::kBound) {
    Buffer buffer;
    buffer.name = "b" + std::to_string(step_.graph.buffers().size());
    buffer.dtype = DType::kI64;
    buffer.count = count;
    buffer.ownership = ownership;
    return *step_.graph.AddBuffer(buffer);
  }
  void AddOp(Kind kind, Access input, Access output,
             std::vector<uint64_t> counts = {}, int peer_offset = 0) {
    Op op;
    op.name = "op" + std::to_string(step_.graph.ops().size());
    op.kind = OpKind::kCollective;
    op.collective = Spec(kind, dp_, input, output);
    op.collective.counts = std::move(counts);
    op.collective.peer_offset = peer_offset;
    ASSERT_OK(step_.graph.AddOp(op));
  }
  // Element i of `buffer` on `rank` before the first step.
  int64_t Before(int rank, BufferId buffer, uint64_t i) const {
    return InitialMemory(step_, rank)[buffer.value()][i];
  }
  // Expects buffer `to` of `rank` to hold these elements of buffer `from`,
  // each (rank, index), and -1 what it held.
  void Expect(int rank, BufferId to, BufferId from,
              const std::vector<std::pair<int, uint64_t>>& elements) const {
    const Values got = RunSequentially(step_, 1)[rank][to.value()];
    Values expected;
    for (const auto& [source, i] : elements) {
      expected.push_back(source < 0 ? Before(rank, to, expected.size())
                                    : Before(source, from, i));
    }
    EXPECT_EQ(got, expected) << "rank " << rank;
  }

  RandomStep step_;
  GroupId dp_;
};

// [2 rows, 4] in rows of 5: columns 0, 1 go to rank 0, columns 2, 3 to rank 1.
TEST_F(ReferenceTest, ExchangeSplitsATileByColumns) {
  const BufferId a = Add(10), b = Add(8);
  AddOp(Kind::kAllToAll, Read(a, Tile(1, 4, 2, 5)), Write(b));
  Expect(0, b, a,
         {{0, 1}, {0, 2}, {0, 6}, {0, 7}, {1, 1}, {1, 2}, {1, 6}, {1, 7}});
  Expect(1, b, a,
         {{0, 3}, {0, 4}, {0, 8}, {0, 9}, {1, 3}, {1, 4}, {1, 8}, {1, 9}});
}

TEST_F(ReferenceTest, GatherFillsATileByColumns) {
  const BufferId a = Add(4), b = Add(10);
  AddOp(Kind::kAllGather, Read(a), Write(b, Tile(0, 4, 2, 5)));
  Expect(1, b, a,
         {{0, 0},
          {0, 1},
          {1, 0},
          {1, 1},
          {-1, 0},
          {0, 2},
          {0, 3},
          {1, 2},
          {1, 3},
          {-1, 0}});
}

TEST_F(ReferenceTest, TileThatIsNotSplitIsDense) {
  const BufferId a = Add(6), b = Add(4);
  AddOp(Kind::kBroadcast, Read(a, Tile(1, 2, 2, 3)), Write(b));
  Expect(1, b, a, {{0, 1}, {0, 2}, {0, 4}, {0, 5}});
}

TEST_F(ReferenceTest, UnevenExchangeUsesTheBeginnings) {
  const BufferId a = Add(6), b = Add(6);
  AddOp(Kind::kAllToAll, Read(a), Write(b), {1, 2, 3, 0});
  Expect(0, b, a, {{0, 0}, {1, 0}, {1, 1}, {1, 2}, {-1, 0}, {-1, 0}});
  Expect(1, b, a, {{0, 1}, {0, 2}, {-1, 0}, {-1, 0}, {-1, 0}, {-1, 0}});
}

TEST_F(ReferenceTest, RingPassesOn) {
  const BufferId a = Add(3), b = Add(3);
  AddOp(Kind::kRecv, {}, Write(b, Range(1, 2)), {}, -1);
  AddOp(Kind::kSend, Read(a, Range(0, 2)), {}, {}, 1);
  Expect(0, b, a, {{-1, 0}, {1, 0}, {1, 1}});
  Expect(1, b, a, {{-1, 0}, {0, 0}, {0, 1}});
}

TEST_F(ReferenceTest, GroupsOfSomeRanksKeepToThemselves) {
  step_.num_ranks = 4;
  step_.communicators = {{{0, 2}, {1, 3}}};
  EXPECT_EQ(step_.PositionOf(dp_, 2), 1);
  EXPECT_EQ(step_.RanksOf(dp_, 3), (std::vector<int>{1, 3}));
  const BufferId a = Add(1), b = Add(2);
  AddOp(Kind::kAllGather, Read(a), Write(b));
  Expect(0, b, a, {{0, 0}, {2, 0}});
  Expect(3, b, a, {{1, 0}, {3, 0}});
}

// Of 12 elements a step has k * 2; two ranks exchange halves of those.
TEST_F(ReferenceTest, LateBoundSideSaysHowMany) {
  const BufferId late = Add(12, Ownership::kLateBound), b = Add(12);
  Op writer;
  writer.name = "writer";
  writer.accesses = {Write(late)};
  ASSERT_OK(step_.graph.AddOp(writer));
  AddOp(Kind::kAllToAll, Read(late), Write(b));
  const uint64_t count = CountInStep(step_, late, 0);
  ASSERT_EQ(count % 2, 0u);
  ASSERT_GE(count, 2u);
  std::vector<RankMemory> memory = {InitialMemory(step_, 0),
                                    InitialMemory(step_, 1)};
  for (int r = 0; r < 2; ++r) {
    RunCompute(step_, OpId(0), 0, r,
               {memory[r][0].data(), memory[r][1].data()});
    for (uint64_t i = count; i < 12; ++i) {
      EXPECT_EQ(memory[r][0][i], Before(r, late, i));
    }
  }
  const Values got = RunSequentially(step_, 1)[1][b.value()];
  for (uint64_t i = 0; i < 12; ++i) {
    const int64_t expected =
        i < count ? memory[i / (count / 2)][0][count / 2 + i % (count / 2)]
                  : Before(1, b, i);
    EXPECT_EQ(got[i], expected) << i;
  }
}

}  // namespace
}  // namespace commsched::test

#include "graph/place_groups.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/dependencies.h"
#include "test/graph/builders.h"
#include "test/graph/random_graph.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using absl::StatusCode;
using enum AccessMode;

class PlaceGroupsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) {
      Buffer buffer = F32(name, 16);
      buffer.place_group = 7;
      ASSERT_OK(graph_.AddBuffer(buffer));
    }
  }

  void Add(std::string name, std::vector<Access> accesses) {
    ASSERT_OK(graph_.AddOp(Compute(std::move(name), std::move(accesses))));
  }

  // "from -> to", with +1 where the edge crosses the step boundary, of the
  // edges that no access to one buffer makes.
  std::vector<std::string> TakeOvers() const {
    std::vector<std::string> lines;
    const auto dependencies = InferDependencies(graph_);
    EXPECT_OK(dependencies);
    if (!dependencies.ok()) return lines;
    for (const Dependency& edge : dependencies->edges) {
      const auto& accesses = graph_.op(edge.from).accesses;
      const bool own = std::any_of(
          accesses.begin(), accesses.end(),
          [&](const Access& access) { return access.buffer == edge.buffer; });
      if (own) continue;
      EXPECT_EQ(edge.hazard, Hazard::kWriteAfterRead);
      lines.push_back(absl::StrCat(graph_.op(edge.from).name, " -> ",
                                   graph_.op(edge.to).name,
                                   edge.distance == 1 ? "+1" : "", " ",
                                   graph_.buffer(edge.buffer).name));
    }
    return lines;
  }

  using Lines = std::vector<std::string>;

  Graph graph_;
  const BufferId a_{0}, b_{1}, c_{2};
};

TEST_F(PlaceGroupsTest, EachBufferWaitsForTheUsersOfTheOneBefore) {
  Add("make_a", {Whole(a_, kWrite)});
  Add("read_1", {Whole(a_)});
  Add("read_2", {Whole(a_)});
  Add("make_b", {Whole(b_, kWrite)});
  EXPECT_EQ(TakeOvers(), Lines({"make_b -> make_a+1 a", "read_1 -> make_b b",
                                "read_2 -> make_b b"}));
}

TEST_F(PlaceGroupsTest, UsersBeforeTheLastWholeWriteAreNotWaitedFor) {
  Add("make_a", {Whole(a_, kWrite)});
  Add("read", {Whole(a_)});
  Add("remake_a", {Whole(a_, kWrite)});
  Add("make_b", {Whole(b_, kWrite)});
  EXPECT_EQ(TakeOvers(),
            Lines({"make_b -> make_a+1 a", "remake_a -> make_b b"}));
}

TEST_F(PlaceGroupsTest, TheFirstWaitsForTheLastOfTheStepBefore) {
  for (const BufferId buffer : {a_, b_, c_}) {
    Add(graph_.buffer(buffer).name, {Whole(buffer, kWrite)});
  }
  EXPECT_EQ(TakeOvers(), Lines({"c -> a+1 a", "a -> b b", "b -> c c"}));
}

TEST_F(PlaceGroupsTest, ABufferThatNobodyUsesTakesNoTurn) {
  Add("make_a", {Whole(a_, kWrite)});
  Add("make_c", {Whole(c_, kWrite)});
  EXPECT_EQ(TakeOvers(), Lines({"make_c -> make_a+1 a", "make_a -> make_c c"}));
}

TEST_F(PlaceGroupsTest, OneThatTakesNoTurnsMayKeepItsContents) {
  Add("update", {Whole(a_, kReadWrite)});
  EXPECT_EQ(TakeOvers(), Lines());
}

TEST_F(PlaceGroupsTest, TwoThatAreAliveAtOnceAreRefused) {
  Add("make_a", {Whole(a_, kWrite)});
  Add("make_b", {Whole(b_, kWrite)});
  Add("read_a", {Whole(a_)});
  EXPECT_THAT(CheckPlaceGroups(graph_),
              StatusIs(StatusCode::kInvalidArgument,
                       "buffers 'a' and 'b' of place group 7 are alive at the "
                       "same time: op 'make_b' begins 'b' before op 'read_a' "
                       "has used 'a' for the last time"));
}

TEST_F(PlaceGroupsTest, AnOpThatPassesFromOneToTheOtherIsRefused) {
  Add("make_a", {Whole(a_, kWrite)});
  Add("copy", {Whole(a_), Whole(b_, kWrite)});
  EXPECT_THAT(InferDependencies(graph_),
              StatusIs(StatusCode::kInvalidArgument,
                       "op 'copy' begins 'b' before op 'copy' has used 'a'"));
}

TEST_F(PlaceGroupsTest, WhatKeepsContentsOverTheBoundaryIsRefused) {
  Add("make_a", {Whole(a_, kWrite)});
  Add("update_b", {Whole(b_, kReadWrite)});
  EXPECT_THAT(
      CheckPlaceGroups(graph_),
      StatusIs(StatusCode::kInvalidArgument,
               "buffers 'a' and 'b' of place group 7 are alive at the "
               "same time: 'b' keeps its contents from step to step, as "
               "op 'update_b'"));
}

TEST_F(PlaceGroupsTest, WhatIsBegunInPartIsRefused) {
  Add("begin_a", {Range(a_, 0, 15, kWrite)});
  Add("make_b", {Whole(b_, kWrite)});
  EXPECT_THAT(CheckPlaceGroups(graph_),
              StatusIs(StatusCode::kInvalidArgument, "op 'begin_a'"));
}

TEST_F(PlaceGroupsTest, OtherGroupsDoNotMatter) {
  Buffer other = F32("other", 16);
  other.place_group = 8;
  ASSERT_OK_AND_ASSIGN(const BufferId d, graph_.AddBuffer(other));
  Add("make_a", {Whole(a_, kWrite)});
  Add("make_d", {Whole(d, kWrite)});
  Add("read_a", {Whole(a_)});
  EXPECT_EQ(TakeOvers(), Lines());
}

TEST(PlaceGroupBufferTest, OnlyWhatIsOwnedHasAPlace) {
  for (const Ownership ownership : {Ownership::kBound, Ownership::kLateBound}) {
    Graph graph;
    Buffer buffer = F32("a", 16);
    buffer.ownership = ownership;
    buffer.place_group = 3;
    EXPECT_THAT(graph.AddBuffer(buffer),
                StatusIs(StatusCode::kInvalidArgument,
                         "buffer 'a' is in place group 3, but only an OWNED "
                         "buffer has a place in the arena"));
  }
}

// Whether two buffers of a group are alive at once, from the words of the
// public header.
bool AnyAreAliveAtOnce(const Graph& graph) {
  const auto is_alive = [&](uint32_t b, size_t at) {
    bool before = false, after = false, carries = false, begun = false;
    for (size_t i = 0; i < graph.ops().size(); ++i) {
      bool uses = false, whole_write = true;
      for (const Access& access : graph.ops()[i].accesses) {
        if (access.buffer != BufferId(b)) continue;
        uses = true;
        const bool whole = access.region.kind == RegionKind::kWhole ||
                           (access.region.kind == RegionKind::kRange &&
                            access.region.count == graph.buffers()[b].count);
        whole_write = whole_write && whole && access.mode == kWrite;
      }
      if (!uses) continue;
      if (!begun) carries = !whole_write;
      begun = true;
      before = before || i <= at;
      after = after || i >= at;
    }
    return carries || (before && after);
  };
  for (size_t at = 0; at < graph.ops().size(); ++at) {
    for (uint32_t a = 0; a < graph.buffers().size(); ++a) {
      for (uint32_t b = a + 1; b < graph.buffers().size(); ++b) {
        const uint32_t group = graph.buffers()[a].place_group;
        if (group == 0 || group != graph.buffers()[b].place_group) continue;
        if (is_alive(a, at) && is_alive(b, at)) return true;
      }
    }
  }
  // A buffer that carries contents is alive where the others are: at their ops.
  return false;
}

TEST(PlaceGroupsPropertyTest, WhatOverlapsIsRefusedAndNothingElse) {
  int refused = 0, accepted = 0;
  const int cases = test::PropertyCases(2000);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    // So few ops that some buffers do take turns.
    const Graph graph = RandomGraph(seed, 5);
    if (!graph.has_place_groups()) continue;
    const bool overlap = AnyAreAliveAtOnce(graph);
    ASSERT_EQ(CheckPlaceGroups(graph).ok(), !overlap)
        << CheckPlaceGroups(graph);
    ++(overlap ? refused : accepted);
  }
  EXPECT_GT(refused, cases / 200);
  EXPECT_GT(accepted, cases / 50);
}

}  // namespace
}  // namespace commsched

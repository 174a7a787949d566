#include "graph/collective_shape.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/graph_builder.h"

namespace commsched {
namespace {

using Kind = CollectiveKind;

// What is true of a kind, by letter: combines inputs, has a Root, is Point to
// point, has an Input, an Output, splits the input (<), the output (>).
std::string ShapeOf(Kind kind) {
  std::string shape;
  if (IsReducing(kind)) shape += "C";
  if (IsRooted(kind)) shape += "R";
  if (IsPointToPoint(kind)) shape += "P";
  if (HasInput(kind)) shape += "I";
  if (HasOutput(kind)) shape += "O";
  if (SplitsInput(kind)) shape += "<";
  if (SplitsOutput(kind)) shape += ">";
  EXPECT_EQ(HasParts(kind), SplitsInput(kind) || SplitsOutput(kind));
  return shape;
}

TEST(CollectiveShapeTest, EveryKindHasTheOneOfTheAbi) {
  EXPECT_EQ(ShapeOf(Kind::kAllReduce), "CIO");
  EXPECT_EQ(ShapeOf(Kind::kReduceScatter), "CIO<");
  EXPECT_EQ(ShapeOf(Kind::kAllGather), "IO>");
  EXPECT_EQ(ShapeOf(Kind::kAllToAll), "IO<>");
  EXPECT_EQ(ShapeOf(Kind::kBroadcast), "RIO");
  EXPECT_EQ(ShapeOf(Kind::kReduce), "CRIO");
  EXPECT_EQ(ShapeOf(Kind::kBarrier), "");
  EXPECT_EQ(ShapeOf(Kind::kSend), "PI");
  EXPECT_EQ(ShapeOf(Kind::kRecv), "PO");
}

TEST(CollectiveShapeTest, CountsAreGivenPerPartOfTheKind) {
  EXPECT_EQ(NumParts(Kind::kReduceScatter, 3), 3);
  EXPECT_EQ(NumParts(Kind::kAllGather, 3), 3);
  EXPECT_EQ(NumParts(Kind::kAllToAll, 3), 9);
  for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduce,
                          Kind::kBarrier, Kind::kSend, Kind::kRecv}) {
    EXPECT_EQ(NumParts(kind, 3), 1);
  }
}

TEST(CollectiveShapeTest, APartIsAShareOfTheSplitSide) {
  test::GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 4);
  const BufferId whole = builder.Buffer("whole", 400);
  const BufferId part = builder.Buffer("part", 100);
  const BufferId other = builder.Buffer("other", 400);
  builder.Compute("make", {test::Write(whole)});
  builder.ReduceScatter("scatter", dp, test::Read(whole), test::Write(part));
  builder.AllGather("gather", dp, other);
  builder.AllReduce("sum", dp, other);
  const Graph graph = builder.graph();
  std::vector<uint64_t> parts;
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::kCollective) continue;
    parts.push_back(PartCount(graph, op.collective));
  }
  EXPECT_EQ(parts, std::vector<uint64_t>({100, 100, 400}));
  CollectiveSpec barrier;
  barrier.kind = Kind::kBarrier;
  EXPECT_EQ(PartCount(graph, barrier), 0u);
}

TEST(CollectiveShapeTest, ALinkCarriesWhatOthersHave) {
  EXPECT_DOUBLE_EQ(LinkShare(Kind::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(LinkShare(Kind::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(LinkShare(Kind::kBroadcast, 2), 0.5);
  EXPECT_DOUBLE_EQ(LinkShare(Kind::kSend, 8), 1);
  EXPECT_DOUBLE_EQ(LinkShare(Kind::kBarrier, 8), 0);
}

TEST(CollectiveShapeTest, TheBusiestRankSendsOrReceivesMost) {
  // By sender; what a rank keeps does not count.
  EXPECT_EQ(BusiestElements({900, 1, 2, 3, 900, 4, 5, 6, 900}, 3), 11);
  EXPECT_EQ(BusiestElements({0, 1, 0, 7, 0, 0, 7, 0, 0}, 3), 14);
  EXPECT_EQ(BusiestElements({5}, 1), 0);
}

}  // namespace
}  // namespace commsched

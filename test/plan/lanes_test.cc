#include "plan/lanes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::OnLane;
using test::Read;
using test::Waits;
using test::Write;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ComputeNode& NodeOf(const Plan& plan, const std::string& name) {
  return plan.nodes[plan.node_of_op[plan.graph->FindOp(name)->value()]];
}

TEST(LanesTest, OneComputeLaneNeedsNoEventOnlyTheHostCheck) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 8);
  b.Compute("write", {Write(x)});
  b.Compute("read", {Read(x)});
  const auto plan = MakePlan(b.graph());
  EXPECT_THAT(Waits(*plan, "read"), IsEmpty());
  EXPECT_THAT(Waits(*plan, "write"), IsEmpty());  // nor across the boundary
  EXPECT_THAT(NodeOf(*plan, "read").after, ElementsAre(OpId(0)));
}

TEST(LanesTest, AnotherComputeLaneWaitsBothWays) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 8);
  b.Compute("write", {Write(x)}, OnLane(0));
  b.Compute("read", {Read(x)}, OnLane(1));
  const auto plan = MakePlan(b.graph());
  EXPECT_THAT(Waits(*plan, "read"), ElementsAre("write"));
  EXPECT_THAT(Waits(*plan, "write"), ElementsAre("read-1"));
}

TEST(LanesTest, AWaitForALaterOpOfAChainImpliesTheEarlierOnes) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  b.Compute("first", {Write(x)});
  b.Compute("second", {Read(x), Write(y)});
  b.Compute("other", {Read(x), Read(y)}, OnLane(1));
  const auto plan = MakePlan(b.graph());
  EXPECT_THAT(Waits(*plan, "other"), ElementsAre("second"));
  EXPECT_GE(plan->num_waits_implied, 1u);
}

TEST(LanesTest, IndependentOpsOfALaneDoNotImplyEachOther) {
  // The framework may call them in either order.
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  b.Compute("one", {Write(x)});
  b.Compute("two", {Write(y)});
  b.Compute("other", {Read(x), Read(y)}, OnLane(1));
  EXPECT_THAT(Waits(*MakePlan(b.graph()), "other"), ElementsAre("two", "one"));
}

TEST(LanesTest, TheLastLaunchOfALaneImpliesAllBeforeIt) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  b.AllReduce("a", dp, x);
  b.AllReduce("b", dp, y);
  b.Compute("use", {Read(x), Read(y)});
  const auto plan = MakePlan(b.graph());
  EXPECT_THAT(Waits(*plan, "use"), ElementsAre("#1"));
  EXPECT_THAT(NodeOf(*plan, "use").needs,
              ElementsAre(LaunchId(0), LaunchId(1)));
}

TEST(LanesTest, LaunchesOfTwoLanesAreWaitedForOneByOne) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const GroupId tp = b.Group("tp", 2);
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  b.AllReduce("a", dp, x);
  b.AllReduce("b", tp, y);
  b.Compute("use", {Read(x), Read(y)});
  PlanOptions options;
  options.num_comm_lanes = 2;
  const auto plan = MakePlan(b.graph(), options);
  EXPECT_EQ(plan->launches[1].lane, 1u);
  EXPECT_THAT(Waits(*plan, "use"), ElementsAre("#1", "#0"));
}

TEST(LanesTest, LaunchesOfOneLaneThatConflictWaitSinceALaneOrdersOnlyEnds) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  b.AllReduce("a", dp, x);
  b.AllReduce("b", dp, x);
  const auto plan = MakePlan(b.graph());
  EXPECT_THAT(Waits(*plan, "b"), ElementsAre("#0"));
  EXPECT_THAT(Waits(*plan, "a"), ElementsAre("#1-1"));
}

TEST(LanesTest, ALaunchIsFedByItsProducersEvenIfTheirEventsAreImplied) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  const BufferId z = b.Buffer("z", 16);
  b.Compute("first", {Write(x), Write(z, test::Range(0, 8))});
  b.Compute("second", {Read(x), Write(z, test::Range(8, 8))});
  b.Collective("sum",
               test::Spec(CollectiveKind::kAllReduce, dp, Read(z), Write(z)));
  const auto plan = MakePlan(b.graph());
  EXPECT_THAT(Waits(*plan, "sum"), ElementsAre("second"));
  EXPECT_THAT(plan->launches[0].producers, ElementsAre(OpId(0), OpId(1)));
}

}  // namespace
}  // namespace commsched

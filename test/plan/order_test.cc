#include "plan/order.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Names;
using test::Read;
using test::Write;
using ::testing::ElementsAre;

PlannedOrder Order(const Graph& graph) {
  auto dependencies = InferDependencies(graph);
  EXPECT_OK(dependencies);
  return OrderOps(graph, *dependencies);
}

TEST(OrderTest, HostOrderIsTheDeclaredOrderWithoutCollectives) {
  const Graph graph = test::ZeroStep({.buckets = 2});
  EXPECT_THAT(Names(graph, Order(graph).host),
              ElementsAre("fwd.0", "fwd.1", "bwd.1", "bwd.0", "norm", "opt.0",
                          "opt.1"));
}

TEST(OrderTest, WhatIsReadyFirstGoesFirst) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  b.Compute("early", {Write(y)});
  b.Compute("late", {Write(x)});
  b.AllReduce("of_late", dp, x);  // declared first
  b.AllReduce("of_early", dp, y);
  const PlannedOrder order = Order(b.graph());
  EXPECT_THAT(Names(b.graph(), order.collectives),
              ElementsAre("of_early", "of_late"));
  EXPECT_EQ(order.ready[2], 2u);
  EXPECT_EQ(order.ready[3], 1u);
}

TEST(OrderTest, AChainOfCollectivesKeepsItsOrderWhateverThePriorities) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  b.Compute("make", {Write(x)});
  const auto all_reduce =
      test::Spec(CollectiveKind::kAllReduce, dp, Read(x), Write(x));
  b.Collective("first", all_reduce, /*priority=*/0);
  b.Collective("second", all_reduce, /*priority=*/9);
  EXPECT_THAT(Names(b.graph(), Order(b.graph()).collectives),
              ElementsAre("first", "second"));
}

class TieTest : public ::testing::Test {
 protected:
  // Two all-reduces that are ready at once.
  void Build(int priority_of_b, bool b_is_needed_first) {
    const GroupId dp = builder_.Group("dp", 2);
    const BufferId x = builder_.Buffer("x", 8);
    const BufferId y = builder_.Buffer("y", 8);
    builder_.Compute("make", {Write(x), Write(y)});
    builder_.Collective(
        "a", test::Spec(CollectiveKind::kAllReduce, dp, Read(x), Write(x)));
    builder_.Collective(
        "b", test::Spec(CollectiveKind::kAllReduce, dp, Read(y), Write(y)),
        priority_of_b);
    builder_.Compute("use.0", {Read(b_is_needed_first ? y : x)});
    builder_.Compute("use.1", {Read(b_is_needed_first ? x : y)});
  }
  std::vector<std::string> Keys() const {
    return Names(builder_.graph(), Order(builder_.graph()).collectives);
  }
  GraphBuilder builder_;
};

TEST_F(TieTest, TheHigherPriorityGoesFirst) {
  Build(/*priority_of_b=*/1, /*b_is_needed_first=*/false);
  EXPECT_THAT(Keys(), ElementsAre("b", "a"));
}

TEST_F(TieTest, ThenTheOneThatIsNeededFirst) {
  Build(/*priority_of_b=*/0, /*b_is_needed_first=*/true);
  EXPECT_THAT(Keys(), ElementsAre("b", "a"));
}

TEST_F(TieTest, ThenTheOneDeclaredFirst) {
  Build(/*priority_of_b=*/0, /*b_is_needed_first=*/false);
  EXPECT_THAT(Keys(), ElementsAre("a", "b"));
}

TEST(OrderTest, GathersGoInTheOrderTheNextStepNeedsThem) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId p = b.Buffer("p", 8);
  const BufferId q = b.Buffer("q", 8);
  b.Compute("reads_q", {Read(q)});
  b.Compute("reads_p", {Read(p)});
  b.Compute("step", {test::ReadWrite(p, test::Shard(dp)),
                     test::ReadWrite(q, test::Shard(dp))});
  b.AllGather("gather_p", dp, p);
  b.AllGather("gather_q", dp, q);
  EXPECT_THAT(Names(b.graph(), Order(b.graph()).collectives),
              ElementsAre("gather_q", "gather_p"));
}

}  // namespace
}  // namespace commsched

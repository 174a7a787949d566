#include "plan/markers.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "plan/verify/verify.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

// Ops without accesses: what orders them is explicit.
class MarkersTest : public testing::Test {
 protected:
  OpId Add(const char* name, OpKind kind, std::vector<OpId> after = {}) {
    Op op;
    op.name = name;
    op.kind = kind;
    op.after = std::move(after);
    return graph_.AddOp(op).value();
  }
  OpId Compute(const char* name, std::vector<OpId> after = {}) {
    return Add(name, OpKind::kCompute, std::move(after));
  }
  OpId Marker(const char* name, std::vector<OpId> after = {}) {
    return Add(name, OpKind::kMarker, std::move(after));
  }
  // "from->to" or "from->to+1" of each edge, in order.
  std::vector<std::string> Dissolved() {
    Dependencies dependencies = InferDependencies(graph_).value();
    DissolveMarkers(graph_, &dependencies);
    std::vector<std::string> edges;
    for (uint32_t i = 0; i < graph_.ops().size(); ++i) {
      for (const Dependency& edge : dependencies.Into(OpId(i))) {
        EXPECT_EQ(edge.to, OpId(i));
        edges.push_back(absl::StrCat(graph_.op(edge.from).name, "->",
                                     graph_.op(edge.to).name,
                                     edge.distance == 0 ? "" : "+1"));
      }
    }
    EXPECT_EQ(edges.size(), dependencies.edges.size());
    return edges;
  }
  Graph graph_;
};

using Edges = std::vector<std::string>;

TEST_F(MarkersTest, WhatComesAfterAMarkerComesAfterAllBeforeIt) {
  const OpId a = Compute("a");
  const OpId b = Compute("b");
  const OpId m = Marker("m", {a, b});
  Compute("c", {m});
  EXPECT_EQ(Dissolved(), (Edges{"a->c", "b->c"}));
}

TEST_F(MarkersTest, ChainsOfMarkersAreFollowed) {
  const OpId a = Compute("a");
  const OpId m = Marker("m", {a});
  const OpId n = Marker("n", {m});
  Compute("b", {n});
  EXPECT_EQ(Dissolved(), (Edges{"a->b"}));
}

TEST_F(MarkersTest, APathAcrossTheStepBoundaryStaysLoopCarried) {
  const OpId a = Compute("a");
  const OpId b = Compute("b");
  const OpId m = Marker("m", {b});
  ASSERT_OK(graph_.AddEdge({m, a, 1}));
  EXPECT_EQ(Dissolved(), (Edges{"b->a+1"}));
}

TEST_F(MarkersTest, TwoBoundariesBecomeOne) {
  const OpId a = Compute("a");
  const OpId m = Marker("m");
  ASSERT_OK(graph_.AddEdge({a, m, 1}));
  ASSERT_OK(graph_.AddEdge({m, a, 1}));
  EXPECT_EQ(Dissolved(), (Edges{"a->a+1"}));
}

TEST_F(MarkersTest, MarkersThatFollowEachOtherRoundTheStepEnd) {
  const OpId a = Compute("a");
  const OpId m = Marker("m", {a});
  const OpId n = Marker("n", {m});
  ASSERT_OK(graph_.AddEdge({n, m, 1}));
  Compute("b", {n});
  EXPECT_EQ(Dissolved(), (Edges{"a->b", "a->b+1"}));
}

TEST_F(MarkersTest, APlanHasNoNodeForAMarker) {
  const OpId a = Compute("a");
  const OpId m = Marker("m", {a});
  Compute("b", {m});
  ASSERT_OK_AND_ASSIGN(const auto plan, BuildPlan(graph_, {}, {}));
  EXPECT_EQ(plan->nodes.size(), 2u);
  EXPECT_EQ(plan->nodes[1].after, (OpIdList{a}));
}

TEST_F(MarkersTest, TheVerifierFollowsMarkersItself) {
  Op other_lane;
  other_lane.name = "a";
  other_lane.compute.lane = 1;
  const OpId a = graph_.AddOp(other_lane).value();
  const OpId m = Marker("m", {a});
  Compute("b", {m});
  ASSERT_OK_AND_ASSIGN(const auto plan, BuildPlan(graph_, {}, {}));
  Plan broken = *plan;
  for (ComputeNode& node : broken.nodes) node.waits.clear();
  EXPECT_THAT(VerifyPlan(broken),
              StatusIs(absl::StatusCode::kInternal, "explicit edge"));
}

}  // namespace
}  // namespace commsched

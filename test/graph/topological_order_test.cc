#include "graph/topological_order.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "test/graph/builders.h"

namespace commsched {
namespace {

Graph Ops(int count) {
  Graph graph;
  for (int i = 0; i < count; ++i) {
    EXPECT_OK(graph.AddOp(Compute(absl::StrCat("m", i))));
  }
  return graph;
}

std::vector<uint32_t> Order(const Graph& graph,
                            const std::vector<Precedence>& precedences) {
  const auto order = TopologicalOrder(graph, precedences);
  EXPECT_OK(order);
  std::vector<uint32_t> values;
  for (const OpId op : *order) values.push_back(op.value());
  return values;
}

using Values = std::vector<uint32_t>;

TEST(TopologicalOrderTest, DeclaredOrderIsKeptWhereItIsOne) {
  EXPECT_EQ(Order(Ops(4), {{OpId(0), OpId(3)}, {OpId(1), OpId(2)}}),
            Values({0, 1, 2, 3}));
}

TEST(TopologicalOrderTest, OpThatWaitsMovesBackNoFurtherThanItMust) {
  EXPECT_EQ(Order(Ops(4), {{OpId(2), OpId(0)}}), Values({1, 2, 0, 3}));
}

TEST(TopologicalOrderTest, RepeatedPrecedencesCountOnce) {
  EXPECT_EQ(Order(Ops(2), {{OpId(1), OpId(0)}, {OpId(1), OpId(0)}}),
            Values({1, 0}));
}

TEST(TopologicalOrderTest, EmptyGraphHasAnEmptyOrder) {
  EXPECT_EQ(Order(Graph(), {}), Values());
}

TEST(TopologicalOrderTest, OnlyTheOpsOnTheCycleAreNamed) {
  // 0 leads into the cycle 1 -> 3 -> 2 -> 1, which leads to 4.
  const std::vector<Precedence> precedences = {{OpId(0), OpId(1)},
                                               {OpId(1), OpId(3)},
                                               {OpId(3), OpId(2)},
                                               {OpId(2), OpId(1)},
                                               {OpId(2), OpId(4)}};
  EXPECT_THAT(TopologicalOrder(Ops(5), precedences),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a cycle of 3 ops within the step: "
                       "'m1' -> 'm3' -> 'm2' -> 'm1'"));
}

}  // namespace
}  // namespace commsched

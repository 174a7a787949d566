#include "graph/sort_edges.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(SortEdgesTest, ShortAndLongListsComeOutSorted) {
  std::mt19937_64 random(1);
  for (size_t size : {0, 1, 2, 31, 32, 33, 34, 1000}) {
    SCOPED_TRACE(size);
    std::vector<uint64_t> edges(size);
    for (uint64_t& edge : edges) edge = random() % 64;
    std::vector<uint64_t> expected = edges;
    std::sort(expected.begin(), expected.end());
    SortEdges(edges.begin(), edges.end());
    EXPECT_EQ(edges, expected);
  }
}

TEST(SortEdgesTest, RunsThatFallAndRiseComeOutSorted) {
  std::vector<uint64_t> edges;
  for (uint64_t i = 500; i > 0; --i) edges.push_back(2 * i);
  for (uint64_t i = 0; i < 500; ++i) edges.push_back(2 * i + 1);
  SortEdges(edges.begin(), edges.end());
  EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end()));
  EXPECT_EQ(edges.front(), 1u);
  EXPECT_EQ(edges.back(), 1000u);
}

}  // namespace
}  // namespace commsched

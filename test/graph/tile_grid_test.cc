#include "graph/tile_grid.h"

#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using Numbers = std::set<uint64_t>;

Numbers CellsOf(const TileGrid& grid, const Extent& region) {
  Numbers cells;
  grid.ForEachCell(region, [&](size_t cell) {
    EXPECT_TRUE(cells.insert(cell).second) << "twice: " << cell;
    EXPECT_LT(cell, grid.num_cells());
  });
  return cells;
}

Numbers ElementsOf(const Extent& region) {
  Numbers elements;
  for (uint64_t row = 0; row < region.rows; ++row) {
    for (uint64_t i = 0; i < region.count; ++i) {
      elements.insert(region.offset + row * region.stride + i);
    }
  }
  return elements;
}

bool Meet(const Numbers& a, const Numbers& b) {
  for (const uint64_t x : a) {
    if (b.contains(x)) return true;
  }
  return false;
}

TEST(TileGridTest, ColumnsOfTheSameRowsAreOneCellEach) {
  const std::vector<Extent> regions = {
      {0, 2, 8, 6}, {2, 2, 8, 6}, {4, 2, 8, 6}, {0, 48}};
  const auto grid = TileGrid::Make(regions, 48);
  ASSERT_TRUE(grid.has_value());
  EXPECT_EQ(grid->num_cells(), 3u);
  EXPECT_EQ(CellsOf(*grid, regions[1]), Numbers({1}));
  EXPECT_EQ(CellsOf(*grid, regions[3]), Numbers({0, 1, 2}));
}

TEST(TileGridTest, ThereIsNoneWithoutTilesOrForSeveralStrides) {
  EXPECT_FALSE(TileGrid::Make({}, 48).has_value());
  EXPECT_FALSE(
      TileGrid::Make(std::vector<Extent>{{0, 48}, {3, 4}}, 48).has_value());
  EXPECT_FALSE(
      TileGrid::Make(std::vector<Extent>{{0, 2, 8, 6}, {0, 2, 4, 8}}, 48)
          .has_value());
  EXPECT_TRUE(
      TileGrid::Make(std::vector<Extent>{{0, 2, 8, 6}, {0, 2, 1, 8}}, 48)
          .has_value());
}

TEST(TileGridTest, NumberOfCellsIsLimited) {
  std::vector<Extent> regions;
  for (uint64_t i = 0; i < 63; ++i) regions.push_back({i, 1, 100, 100});
  for (uint64_t i = 0; i < 63; ++i) regions.push_back({i * 100, 100});
  const auto grid = TileGrid::Make(regions, 10000);
  ASSERT_TRUE(grid.has_value());
  EXPECT_EQ(grid->num_cells(), TileGrid::kMaxCells);
  regions.push_back({6400, 100});
  EXPECT_FALSE(TileGrid::Make(regions, 10000).has_value());
}

// Two regions share a cell exactly if they share an element.
TEST(TileGridTest, CellsMeetWhereElementsDo) {
  int met = 0;
  int apart = 0;
  for (int i = 0, n = test::PropertyCases(2000); i < n; ++i) {
    const uint64_t seed = test::PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t limit) { return random() % limit; };
    const uint64_t total = 20 + below(60);
    const uint64_t stride = 2 + below(8);
    std::vector<Extent> regions = {{0, total}};
    for (int j = 0; j < 6; ++j) {
      const uint64_t offset = below(total - stride);
      if (below(3) == 0) {
        regions.push_back({offset, 1 + below(total - offset)});
        continue;
      }
      const uint64_t count = 1 + below(stride);
      const uint64_t rows = (total - offset - count) / stride + 1;
      regions.push_back({offset, count, 1 + below(rows), stride});
    }
    const auto grid = TileGrid::Make(regions, total);
    if (!grid) continue;
    for (const Extent& a : regions) {
      for (const Extent& b : regions) {
        const bool meet = Meet(ElementsOf(a), ElementsOf(b));
        ASSERT_EQ(Meet(CellsOf(*grid, a), CellsOf(*grid, b)), meet);
        ++(meet ? met : apart);
      }
    }
  }
  EXPECT_GT(met, 100);
  EXPECT_GT(apart, 100);
}

}  // namespace
}  // namespace commsched

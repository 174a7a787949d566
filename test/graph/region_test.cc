#include "graph/region.h"

#include <vector>

#include "test/graph/builders.h"

namespace commsched {
namespace {

class RegionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(dp_, graph_.AddGroup("dp", 4));
    ASSERT_OK_AND_ASSIGN(tp_, graph_.AddGroup("tp", 2));
    ASSERT_OK_AND_ASSIGN(a_, graph_.AddBuffer(F32("a", 16)));
    ASSERT_OK_AND_ASSIGN(b_, graph_.AddBuffer(F32("b", 16)));
  }

  void ExpectExtent(const Access& access, int rank,
                    const std::vector<uint64_t>& counts, uint64_t offset,
                    uint64_t count) {
    const Extent extent = ResolveRegion(graph_, access, rank, counts);
    EXPECT_EQ(extent.offset, offset);
    EXPECT_EQ(extent.count, count);
  }

  Graph graph_;
  GroupId dp_, tp_;
  BufferId a_, b_;
};

TEST_F(RegionTest, WholeAndRangeAreTheSameOnEveryRank) {
  for (const int rank : {0, 3}) {
    ExpectExtent(Whole(a_), rank, {}, 0, 16);
    ExpectExtent(Range(a_, 3, 5), rank, {}, 3, 5);
  }
}

TEST_F(RegionTest, EqualShardsFollowEachOtherInRankOrder) {
  ExpectExtent(Shard(a_, dp_), 0, {}, 0, 4);
  ExpectExtent(Shard(a_, dp_), 3, {}, 12, 4);
  ExpectExtent(Shard(a_, tp_), 1, {}, 8, 8);
}

TEST_F(RegionTest, CountsSplitAShardAndLeaveOtherRegionsAlone) {
  const std::vector<uint64_t> counts = {5, 0, 9, 2};
  ExpectExtent(Shard(a_, dp_), 0, counts, 0, 5);
  ExpectExtent(Shard(a_, dp_), 1, counts, 5, 0);
  ExpectExtent(Shard(a_, dp_), 2, counts, 5, 9);
  ExpectExtent(Shard(a_, dp_), 3, counts, 14, 2);
  ExpectExtent(Range(a_, 1, 9), 2, counts, 1, 9);
}

TEST_F(RegionTest, RangesOverlapWhereTheyShareAnElement) {
  EXPECT_TRUE(MayOverlap(graph_, Range(a_, 0, 5), Range(a_, 4, 2)));
  EXPECT_FALSE(MayOverlap(graph_, Range(a_, 0, 4), Range(a_, 4, 2)));
  EXPECT_FALSE(MayOverlap(graph_, Range(a_, 4, 2), Range(a_, 0, 4)));
  EXPECT_TRUE(MayOverlap(graph_, Whole(a_), Range(a_, 15, 1)));
}

TEST_F(RegionTest, TileIsRowsAtAStride) {
  const Extent extent = ResolveRegion(graph_, Tile(a_, 1, 2, 4, 4), 3, {});
  EXPECT_EQ(extent.offset, 1u);
  EXPECT_EQ(extent.count, 2u);
  EXPECT_EQ(extent.rows, 4u);
  EXPECT_EQ(extent.stride, 4u);
  EXPECT_EQ(extent.elements(), 8u);
  EXPECT_EQ(extent.end(), 15u);
}

void ExpectPart(const Extent& part, uint64_t offset, uint64_t count,
                uint64_t rows, uint64_t stride) {
  EXPECT_EQ(part.offset, offset);
  EXPECT_EQ(part.count, count);
  EXPECT_EQ(part.rows, rows);
  EXPECT_EQ(part.stride, stride);
}

TEST_F(RegionTest, PartsOfATileAreColumnsOfEveryRow) {
  const Extent tile = {3, 8, 2, 16};
  ExpectPart(PartOf(tile, 0, 4), 3, 2, 2, 16);   // part 0 of 4
  ExpectPart(PartOf(tile, 12, 4), 9, 2, 2, 16);  // part 3 of 4
  // Uneven: counts 2, 6, 8.
  ExpectPart(PartOf(tile, 0, 2), 3, 1, 2, 16);
  ExpectPart(PartOf(tile, 2, 6), 4, 3, 2, 16);
  ExpectPart(PartOf(tile, 8, 8), 7, 4, 2, 16);
  ExpectPart(PartOf(tile, 8, 0), 7, 0, 2, 16);
}

TEST_F(RegionTest, PartsOfARangeFollowEachOther) {
  ExpectPart(PartOf({3, 8}, 4, 2), 7, 2, 1, 0);
  ExpectPart(PartOf({3, 8}, 6, 2), 9, 2, 1, 0);
}

TEST_F(RegionTest, ColumnsOfTheSameRowsDoNotOverlap) {
  EXPECT_FALSE(MayOverlap(graph_, Tile(a_, 0, 2, 4, 4), Tile(a_, 2, 2, 4, 4)));
  EXPECT_TRUE(MayOverlap(graph_, Tile(a_, 0, 3, 4, 4), Tile(a_, 2, 2, 4, 4)));
  EXPECT_FALSE(MayOverlap(graph_, Tile(a_, 0, 2, 2, 4), Tile(a_, 8, 2, 2, 4)));
  EXPECT_FALSE(MayOverlap(graph_, Tile(a_, 0, 2, 4, 4), Range(a_, 6, 2)));
  EXPECT_TRUE(MayOverlap(graph_, Tile(a_, 0, 2, 4, 4), Range(a_, 7, 2)));
  EXPECT_TRUE(MayOverlap(graph_, Tile(a_, 0, 2, 4, 4), Whole(a_)));
  EXPECT_TRUE(MayOverlap(graph_, Tile(a_, 0, 2, 4, 4), Shard(a_, dp_)));
  EXPECT_FALSE(MayOverlap(graph_, Tile(a_, 0, 2, 4, 4), Tile(b_, 0, 2, 4, 4)));
}

TEST_F(RegionTest, LongTilesOfDifferentStridesAreTakenToOverlap) {
  ASSERT_OK_AND_ASSIGN(const BufferId c, graph_.AddBuffer(F32("c", 10000)));
  EXPECT_TRUE(MayOverlap(graph_, Tile(c, 0, 1, 257, 4), Tile(c, 2, 1, 257, 8)));
  EXPECT_FALSE(
      MayOverlap(graph_, Tile(c, 0, 1, 256, 4), Tile(c, 2, 1, 257, 8)));
  EXPECT_FALSE(
      MayOverlap(graph_, Tile(c, 0, 1, 500, 4), Tile(c, 2000, 1, 500, 8)));
}

// Any two tiles, ranges and wholes of a small buffer against their elements.
TEST_F(RegionTest, OverlapOfTilesAndRangesIsExact) {
  std::vector<Access> accesses = {Whole(a_), Range(a_, 0, 4), Range(a_, 5, 1),
                                  Range(a_, 3, 13)};
  for (uint64_t stride = 1; stride <= 5; ++stride) {
    for (uint64_t count = 1; count <= stride; ++count) {
      for (uint64_t offset = 0; offset + count <= 16; offset += 2) {
        const uint64_t most = (16 - offset - count) / stride + 1;
        for (uint64_t rows = 1; rows <= most; rows += 2) {
          accesses.push_back(Tile(a_, offset, count, rows, stride));
        }
      }
    }
  }
  int overlapping = 0;
  std::vector<uint32_t> masks;
  for (const Access& access : accesses) {
    const Extent extent = ResolveRegion(graph_, access, 0, {});
    uint32_t mask = 0;
    for (uint64_t row = 0; row < extent.rows; ++row) {
      mask |= ((1u << extent.count) - 1)
              << (extent.offset + row * extent.stride);
    }
    masks.push_back(mask);
  }
  for (size_t i = 0; i < accesses.size(); ++i) {
    for (size_t j = 0; j < accesses.size(); ++j) {
      const bool overlap = (masks[i] & masks[j]) != 0;
      ASSERT_EQ(MayOverlap(graph_, accesses[i], accesses[j]), overlap)
          << masks[i] << " and " << masks[j];
      overlapping += overlap ? 1 : 0;
    }
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(overlapping, static_cast<int>(accesses.size() * accesses.size()));
}

TEST_F(RegionTest, DifferentBuffersNeverOverlap) {
  EXPECT_FALSE(MayOverlap(graph_, Whole(a_), Whole(b_)));
  EXPECT_FALSE(MayOverlap(graph_, Shard(a_, dp_), Shard(b_, dp_)));
}

TEST_F(RegionTest, ShardMayOverlapAnythingInItsBuffer) {
  EXPECT_TRUE(MayOverlap(graph_, Shard(a_, dp_), Shard(a_, dp_)));
  EXPECT_TRUE(MayOverlap(graph_, Shard(a_, dp_), Shard(a_, tp_)));
  EXPECT_TRUE(MayOverlap(graph_, Shard(a_, dp_), Range(a_, 15, 1)));
  EXPECT_TRUE(MayOverlap(graph_, Whole(a_), Shard(a_, dp_)));
}

}  // namespace
}  // namespace commsched

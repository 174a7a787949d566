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

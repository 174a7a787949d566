#include "comm/mesh.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ::testing::ElementsAre;

TEST(MeshTest, LastAxisVariesFastest) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh,
                       Mesh::Create({{"pp", 2}, {"dp", 3}, {"tp", 2}}, 12));
  // Rank 9 is at (1, 1, 1).
  EXPECT_THAT(*mesh.RanksAlong("tp", 9), ElementsAre(8, 9));
  EXPECT_THAT(*mesh.RanksAlong("dp", 9), ElementsAre(7, 9, 11));
  EXPECT_THAT(*mesh.RanksAlong("pp", 9), ElementsAre(3, 9));
}

TEST(MeshTest, EveryRankIsOnceInTheGroupsOfAnAxis) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh,
                       Mesh::Create({{"a", 3}, {"b", 4}, {"c", 2}}, 24));
  for (const char* axis : {"a", "b", "c"}) {
    for (int rank = 0; rank < 24; ++rank) {
      ASSERT_OK_AND_ASSIGN(const std::vector<int> ranks,
                           mesh.RanksAlong(axis, rank));
      EXPECT_EQ(std::count(ranks.begin(), ranks.end(), rank), 1);
      for (const int other : ranks) {
        EXPECT_EQ(*mesh.RanksAlong(axis, other), ranks);
      }
    }
  }
}

TEST(MeshTest, SizesMustMultiplyToTheWorld) {
  EXPECT_THAT(Mesh::Create({{"dp", 2}, {"tp", 2}}, 5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "dp 2 x tp 2 does not cover the 5 ranks"));
  // 2^16 x 2^16 is 0 in 32 bits.
  EXPECT_THAT(Mesh::Create({{"dp", 1 << 16}, {"tp", 1 << 16}}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, "the 4 ranks"));
  EXPECT_THAT(Mesh::Create({}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "no axes"));
}

TEST(MeshTest, AxisThatIsNotThereIsNamed) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, Mesh::Create({{"dp", 4}}, 4));
  EXPECT_THAT(mesh.RanksAlong("sp", 0),
              StatusIs(absl::StatusCode::kNotFound, "'sp' in the mesh dp 4"));
}

TEST(RankInGroupTest, PositionIsTheRankInTheGroup) {
  EXPECT_EQ(*RankInGroup("dp", {5, 3, 1}, 3, 6), 1);
}

TEST(RankInGroupTest, GroupIsCheckedAgainstTheWorld) {
  EXPECT_THAT(RankInGroup("dp", {5, 6}, 5, 6),
              StatusIs(absl::StatusCode::kOutOfRange, "rank 6"));
  EXPECT_THAT(RankInGroup("dp", {5, -1}, 5, 6),
              StatusIs(absl::StatusCode::kOutOfRange, "rank -1"));
  EXPECT_THAT(
      RankInGroup("dp", {2, 2}, 2, 6),
      StatusIs(absl::StatusCode::kInvalidArgument, "rank 2 appears twice"));
  EXPECT_THAT(RankInGroup("dp", {2, 3}, 4, 6),
              StatusIs(absl::StatusCode::kNotFound, "rank 4"));
}

}  // namespace
}  // namespace commsched

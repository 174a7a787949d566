#include "graph/buffer_history.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using Lines = std::vector<std::string>;

// A history of 100 elements, and what each access says it comes after.
class BufferHistoryTest : public testing::Test {
 protected:
  Lines Read(Extent extent, uint32_t now) {
    std::vector<BufferHistory::Conflict> conflicts;
    history_.Read(extent, now, conflicts);
    return Text(conflicts);
  }
  Lines Write(Extent extent, uint32_t now) {
    std::vector<BufferHistory::Conflict> conflicts;
    history_.Write(extent, now, conflicts);
    return Text(conflicts);
  }
  Lines Read(uint64_t offset, uint64_t count, uint32_t now) {
    return Read({offset, count}, now);
  }
  Lines Write(uint64_t offset, uint64_t count, uint32_t now) {
    return Write({offset, count}, now);
  }

  BufferHistory history_{100};

 private:
  static Lines Text(const std::vector<BufferHistory::Conflict>& conflicts) {
    constexpr const char* kNames[] = {"explicit", "RAW", "WAR", "WAW"};
    Lines lines;
    for (const auto& conflict : conflicts) {
      lines.push_back(absl::StrCat(conflict.time, " ",
                                   kNames[static_cast<int>(conflict.hazard)]));
    }
    return lines;
  }
};

TEST_F(BufferHistoryTest, FirstAccessesFollowNothing) {
  EXPECT_EQ(Read(0, 100, 1), Lines());
  EXPECT_EQ(Read(10, 10, 2), Lines());
}

TEST_F(BufferHistoryTest, WriteFollowsReadersAndForgetsThem) {
  Read(0, 100, 1);
  Read(0, 100, 2);
  EXPECT_EQ(Write(0, 100, 3), Lines({"1 WAR", "2 WAR"}));
  EXPECT_EQ(Write(0, 100, 4), Lines({"3 WAW"}));
  EXPECT_EQ(Read(0, 100, 5), Lines({"4 RAW"}));
}

TEST_F(BufferHistoryTest, AccessToAllIsOneToTheWholeExtent) {
  std::vector<BufferHistory::Conflict> conflicts;
  history_.WriteAll(1, conflicts);
  EXPECT_EQ(Read(0, 100, 2), Lines({"1 RAW"}));
  Write(10, 10, 3);
  history_.ReadAll(4, conflicts);
  ASSERT_EQ(conflicts.size(), 3);  // of three pieces
  EXPECT_EQ(conflicts[1].time, 3);
  EXPECT_EQ(Write(10, 10, 5), Lines({"4 WAR"}));
}

TEST_F(BufferHistoryTest, WriteOfTheWholeLeavesNothingOlderToFollow) {
  EXPECT_FALSE(history_.KnowsOnlySince(0));
  Write(0, 100, 1);
  Read(0, 100, 2);
  EXPECT_FALSE(history_.KnowsOnlySince(2));
  EXPECT_TRUE(history_.KnowsOnlySince(1));
  Write(0, 100, 3);
  EXPECT_TRUE(history_.KnowsOnlySince(2));
}

TEST_F(BufferHistoryTest, WriteOfAPartLeavesTheRestToFollow) {
  Write(0, 100, 1);
  Write(10, 10, 3);
  EXPECT_FALSE(history_.KnowsOnlySince(2));
}

TEST_F(BufferHistoryTest, OpDoesNotFollowItself) {
  Write(0, 100, 1);
  EXPECT_EQ(Read(0, 100, 2), Lines({"1 RAW"}));
  EXPECT_EQ(Write(0, 100, 2), Lines());
}

TEST_F(BufferHistoryTest, PiecesKeepWhatWasKnownOfTheWhole) {
  Write(0, 100, 1);
  Read(0, 100, 2);
  EXPECT_EQ(Write(40, 20, 3), Lines({"2 WAR"}));
  EXPECT_EQ(Read(39, 2, 4), Lines({"1 RAW", "3 RAW"}));
  EXPECT_EQ(Write(60, 40, 5), Lines({"2 WAR"}));
}

TEST_F(BufferHistoryTest, WriteOverSeveralPiecesFollowsEachAndJoinsThem) {
  Write(0, 50, 1);
  Write(50, 50, 2);
  EXPECT_EQ(Write(25, 50, 3), Lines({"1 WAW", "2 WAW"}));
  EXPECT_EQ(Read(25, 50, 4), Lines({"3 RAW"}));
  EXPECT_EQ(Read(0, 25, 5), Lines({"1 RAW"}));
  EXPECT_EQ(Read(75, 25, 6), Lines({"2 RAW"}));
}

TEST_F(BufferHistoryTest, WholeWriteMakesOnePieceAgain) {
  for (uint32_t i = 0; i < 10; ++i) Write(i * 10, 10, i);
  EXPECT_EQ(Write(0, 100, 10).size(), 10u);
  EXPECT_EQ(Read(0, 100, 11), Lines({"10 RAW"}));
  EXPECT_EQ(Read(95, 5, 12), Lines({"10 RAW"}));
}

TEST_F(BufferHistoryTest, RangesAtBothEndsAreInside) {
  Write(0, 1, 1);
  Write(99, 1, 2);
  EXPECT_EQ(Read(0, 100, 3), Lines({"1 RAW", "2 RAW"}));
  EXPECT_EQ(Write(1, 98, 4), Lines({"3 WAR"}));
}

TEST_F(BufferHistoryTest, TileWithoutAGridIsItsSpan) {
  Write(0, 100, 1);
  EXPECT_EQ(Read({10, 2, 5, 20}, 2), Lines({"1 RAW"}));
  EXPECT_EQ(Write({30, 2, 2, 10}, 3), Lines({"2 WAR"}));
  EXPECT_EQ(Write(92, 8, 4), Lines({"1 WAW"}));
}

TEST_F(BufferHistoryTest, SpansOfOneOpDoNotFollowEachOther) {
  Write(0, 100, 1);
  EXPECT_EQ(Write({10, 2, 5, 20}, 2), Lines({"1 WAW"}));
  EXPECT_EQ(Write(15, 2, 2), Lines());
}

TEST_F(BufferHistoryTest, ColumnsInAGridKeepApart) {
  const Extent left = {0, 5, 10, 10};
  const Extent right = {5, 5, 10, 10};
  const Extent whole = {0, 100};
  history_.UseGrid(
      *TileGrid::Make(std::vector<Extent>{left, right, whole}, 100));
  EXPECT_EQ(Write(left, 1), Lines());
  EXPECT_EQ(Write(right, 2), Lines());
  EXPECT_EQ(Read(left, 3), Lines({"1 RAW"}));
  EXPECT_EQ(Read(whole, 4), Lines({"1 RAW", "2 RAW"}));
  EXPECT_EQ(Write(right, 5), Lines({"4 WAR"}));
  EXPECT_EQ(Write(whole, 6), Lines({"3 WAR", "4 WAR", "5 WAW"}));
}

}  // namespace
}  // namespace commsched

#include "channel/shape_table.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace commsched {
namespace {

constexpr int kSize = 4;

struct Call {
  commsched_launch_t launch = {};
  std::vector<commsched_member_t> members;
  std::vector<uint64_t> counts;
};

Call CallOf(commsched_collective_t kind, uint64_t count,
            std::vector<uint64_t> counts = {}) {
  Call call;
  call.counts = std::move(counts);
  call.members.resize(1);
  call.members[0].count = count;
  if (!call.counts.empty()) call.members[0].counts = call.counts.data();
  call.launch.kind = kind;
  call.launch.num_members = 1;
  call.launch.members = call.members.data();
  return call;
}

class ShapeTableTest : public testing::Test {
 protected:
  // Has it expected if it does not fit; whether that was so.
  bool Expect(const Call& call) {
    if (table_.SlotOf(call.launch) != UINT32_MAX) return false;
    const commsched_launch_t* const grown = table_.Grow(call.launch);
    EXPECT_NE(grown, nullptr);
    for (uint32_t m = 0; m < call.launch.num_members; ++m) {
      EXPECT_GE(grown->members[m].count, call.members[m].count);
    }
    for (size_t i = 0; i < call.counts.size(); ++i) {
      EXPECT_GE(grown->members[0].counts[i], call.counts[i]);
    }
    table_.Keep(next_slot_++);
    return true;
  }

  ShapeTable table_{kSize};
  uint32_t next_slot_ = 0;
};

TEST_F(ShapeTableTest, WhatIsNoLargerHasItsSlot) {
  EXPECT_TRUE(Expect(CallOf(COMMSCHED_ALL_REDUCE, 1000)));
  EXPECT_FALSE(Expect(CallOf(COMMSCHED_ALL_REDUCE, 1000)));
  EXPECT_FALSE(Expect(CallOf(COMMSCHED_ALL_REDUCE, 1)));
  EXPECT_EQ(table_.SlotOf(CallOf(COMMSCHED_ALL_REDUCE, 1).launch), 0u);
}

TEST_F(ShapeTableTest, EachKindTypeReductionAndRootIsAShapeOfItsOwn) {
  Call call = CallOf(COMMSCHED_ALL_REDUCE, 10);
  EXPECT_TRUE(Expect(call));
  call.launch.dtype = COMMSCHED_BF16;
  EXPECT_TRUE(Expect(call));
  call.launch.reduce_op = COMMSCHED_MAX;
  EXPECT_TRUE(Expect(call));
  call.launch.kind = COMMSCHED_REDUCE;
  EXPECT_TRUE(Expect(call));
  call.launch.root = 1;
  EXPECT_TRUE(Expect(call));
  call.launch.deterministic = 1;
  EXPECT_TRUE(Expect(call));
}

TEST_F(ShapeTableTest, SizesThatGrowCostLittle) {
  int expected = 0;
  for (uint64_t count = 1; count < 1'000'000; count += 99) {
    if (Expect(CallOf(COMMSCHED_ALL_GATHER, count))) ++expected;
  }
  EXPECT_LE(expected, 8 * 14 + 2);
}

TEST_F(ShapeTableTest, LittleMoreIsExpectedThanIsNeeded) {
  for (uint64_t count : {1'000'000u, 1'048'577u, 99'999u}) {
    const Call call = CallOf(COMMSCHED_ALL_REDUCE, count);
    const commsched_launch_t* const grown = table_.Grow(call.launch);
    EXPECT_LE(grown->members[0].count, count + count / 8);
  }
}

TEST_F(ShapeTableTest, UnevenPartsGrowOneByOne) {
  EXPECT_TRUE(Expect(CallOf(COMMSCHED_ALL_GATHER, 0, {100, 0, 0, 5000})));
  EXPECT_FALSE(Expect(CallOf(COMMSCHED_ALL_GATHER, 0, {7, 0, 0, 4000})));
  EXPECT_TRUE(Expect(CallOf(COMMSCHED_ALL_GATHER, 0, {7, 1, 0, 1})));
  EXPECT_FALSE(Expect(CallOf(COMMSCHED_ALL_GATHER, 0, {100, 1, 0, 5000})));
}

TEST_F(ShapeTableTest, MessagesToOthersAreAnotherShape) {
  Call call = CallOf(COMMSCHED_SEND, 10);
  call.members[0].direction = COMMSCHED_SEND;
  call.members[0].peer = 1;
  EXPECT_TRUE(Expect(call));
  call.launch.tag = 77;  // The same, whatever the tag.
  EXPECT_FALSE(Expect(call));
  call.members[0].peer = 2;
  EXPECT_TRUE(Expect(call));
  call.members[0].direction = COMMSCHED_RECV;
  EXPECT_TRUE(Expect(call));
}

TEST_F(ShapeTableTest, TooManyShapesAreNotExpected) {
  Call call = CallOf(COMMSCHED_BROADCAST, 1);
  for (size_t i = 0; i < ShapeTable::kMostShapes; ++i) {
    call.launch.root = static_cast<int32_t>(i);
    EXPECT_TRUE(Expect(call));
  }
  call.launch.root = -1;
  EXPECT_EQ(table_.SlotOf(call.launch), UINT32_MAX);
  EXPECT_EQ(table_.Grow(call.launch), nullptr);
}

TEST(SizeGuessTest, OneThatIsNoLargerThanOneBeforeIsNotNew) {
  const auto call = [](commsched_collective_t kind) {
    commsched_launch_t launch = {};
    launch.kind = kind;
    return launch;
  };
  SizeGuess sizes;
  EXPECT_TRUE(sizes.IsNew(call(COMMSCHED_ALL_REDUCE), 0));
  sizes.Note(call(COMMSCHED_ALL_REDUCE), 1000);
  EXPECT_FALSE(sizes.IsNew(call(COMMSCHED_ALL_REDUCE), 1000));
  EXPECT_TRUE(sizes.IsNew(call(COMMSCHED_ALL_REDUCE), 1001));
  EXPECT_TRUE(sizes.IsNew(call(COMMSCHED_ALL_GATHER), 1));
  sizes.Note(call(COMMSCHED_ALL_REDUCE), 10);
  EXPECT_FALSE(sizes.IsNew(call(COMMSCHED_ALL_REDUCE), 1000));
}

}  // namespace
}  // namespace commsched

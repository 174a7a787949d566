#include "plan/place.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/fit.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::Read;
using test::ReadWrite;
using test::Waits;
using test::Write;
using ::testing::ElementsAre;

PlanOptions Arena(uint64_t bytes) {
  PlanOptions options;
  options.arena_bytes = bytes;
  return options;
}

// Two owned buffers of 256 bytes, one after the other: a is written and
// reduced, then b is.
Graph TwoLives() {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId a = b.Buffer("a", 64, Ownership::kOwned);
  const BufferId c = b.Buffer("b", 64, Ownership::kOwned);
  b.Compute("make_a", {Write(a)});
  b.AllReduce("sum_a", dp, a);
  b.Compute("make_b", {Write(c)});
  b.AllReduce("sum_b", dp, c);
  return b.graph();
}

TEST(PlaceTest, WithoutALimitNothingIsSharedAndNobodyWaits) {
  const auto plan = MakePlan(TwoLives());
  EXPECT_EQ(plan->arena_bytes, 512u);
  EXPECT_THAT(Waits(*plan, "make_b"), ElementsAre("#1-1"));
}

TEST(PlaceTest, ALimitThatFitsEverythingSharesNothing) {
  EXPECT_EQ(MakePlan(TwoLives(), Arena(512))->arena_bytes, 512u);
}

TEST(PlaceTest, SharedMemoryIsHandedOverInTheStepAndAcrossItsBoundary) {
  const auto plan = MakePlan(TwoLives(), Arena(256));
  EXPECT_EQ(plan->arena_bytes, 256u);
  EXPECT_THAT(Waits(*plan, "make_b"), ElementsAre("#0:arena"));
  EXPECT_THAT(Waits(*plan, "make_a"), ElementsAre("#1-1:arena"));
}

// Owned buffers a, b, ..., one after the other: each is written and reduced.
Graph Lives(const std::vector<uint64_t>& counts) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  char name = 'a';
  for (const uint64_t count : counts) {
    const BufferId buffer = b.Buffer({name}, count, Ownership::kOwned);
    b.Compute(absl::StrFormat("make_%c", name), {Write(buffer)});
    b.AllReduce(absl::StrFormat("sum_%c", name++), dp, buffer);
  }
  return b.graph();
}

// Three lives, room for two: the third takes the place of the first, whose
// reduction is over sooner, not of the second.
TEST(PlaceTest, MemoryRestsAsLongAsTheLimitAllows) {
  const auto plan = MakePlan(Lives({64, 64, 64}), Arena(512));
  EXPECT_THAT(Waits(*plan, "make_c"), ElementsAre("#0:arena"));
}

// In order of time c takes the place of a, and d that of b. By size there is
// room for c beside all others, and d takes the place of a.
TEST(PlaceTest, MemoryRestsLongerWhereItFitsBySize) {
  const auto plan = MakePlan(Lives({64, 64, 64, 128}), Arena(1024));
  EXPECT_THAT(Waits(*plan, "make_d"), ElementsAre("#0:arena"));
}

TEST(PlaceTest, TooSmallNamesThePeakAndTheLeastSizeThatWorks) {
  EXPECT_THAT(
      BuildPlan(TwoLives(), Arena(255), {}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "arena_bytes 255 is too small: 256 bytes are alive at op "
               "'make_a', the largest of them buffer 'a' of 256 bytes; the "
               "least size that works is 256 bytes"));
}

TEST(PlaceTest, TooSmallForAGraphWithoutOpsNamesABuffer) {
  GraphBuilder b;
  b.Buffer("idle", 64, Ownership::kOwned);
  EXPECT_THAT(BuildPlan(b.graph(), Arena(255), {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "without ops, the largest of them buffer 'idle' of 256 "
                       "bytes; the least size that works is 256 bytes"));
}

TEST(PlaceTest, WhatCarriesContentsOverTheBoundarySharesNothing) {
  GraphBuilder b;
  const BufferId state = b.Buffer("state", 64, Ownership::kOwned);
  const BufferId temp = b.Buffer("temp", 64, Ownership::kOwned);
  b.Compute("use_temp", {Write(temp)});
  b.Compute("update", {ReadWrite(state)});
  EXPECT_THAT(BuildPlan(b.graph(), Arena(256), {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the least size that works is 512 bytes"));
}

TEST(PlaceTest, AllLastReadersHandOver) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 64, Ownership::kOwned);
  const BufferId y = b.Buffer("y", 64, Ownership::kOwned);
  b.Compute("make_x", {Write(x)});
  b.Compute("read_1", {Read(x)}, test::OnLane(1));
  b.Compute("read_2", {Read(x)}, test::OnLane(2));
  b.Compute("make_y", {Write(y)});
  const auto plan = MakePlan(b.graph(), Arena(256));
  EXPECT_THAT(Waits(*plan, "make_y"),
              ElementsAre("read_2:arena", "read_1:arena"));
  // The host must have called them, too.
  EXPECT_THAT(plan->nodes[3].after, ElementsAre(OpId(0), OpId(1), OpId(2)));
}

TEST(PlaceTest, OffsetsAreMultiplesOf256) {
  const auto plan = MakePlan(test::ZeroStep({.count = 4}));
  for (const Placement& place : plan->placements) {
    EXPECT_EQ(place.offset % 256, 0u);
  }
}

Slot Alive(uint64_t bytes, uint32_t begin, uint32_t end) {
  Slot slot;
  slot.bytes = bytes;
  slot.stays.push_back({begin, end});
  return slot;
}

TEST(FitTest, InOrderOfTimeTakesTheSmallestHoleThatHolds) {
  // A hole of 512 and one of 256 open up; 256 goes into the latter.
  const std::vector<Slot> slots = {Alive(512, 0, 1), Alive(256, 0, 9),
                                   Alive(256, 0, 1), Alive(256, 0, 9),
                                   Alive(256, 2, 9)};
  const Fit fit = FitInOrderOfTime(slots);
  EXPECT_EQ(fit.offsets[4], fit.offsets[2]);
  EXPECT_EQ(fit.bytes, 1280u);
}

TEST(FitTest, InOrderOfTimeJoinsNeighbouringHoles) {
  const std::vector<Slot> slots = {Alive(256, 0, 0), Alive(256, 0, 1),
                                   Alive(512, 2, 3)};
  EXPECT_EQ(FitInOrderOfTime(slots).bytes, 512u);
}

TEST(FitTest, TouchingLifetimesOverlap) {
  const std::vector<Slot> slots = {Alive(256, 0, 1), Alive(256, 1, 2)};
  EXPECT_EQ(FitInOrderOfTime(slots).bytes, 512u);
  EXPECT_EQ(FitBySize(slots).bytes, 512u);
}

TEST(FitTest, BySizeIsTighterWhereOrderOfTimeFragments) {
  // In order of time the small one takes the bottom and the large ones cannot
  // follow each other there.
  const std::vector<Slot> slots = {Alive(256, 0, 2), Alive(512, 1, 1),
                                   Alive(1024, 3, 3), Alive(256, 2, 4)};
  EXPECT_GT(FitInOrderOfTime(slots).bytes, FitBySize(slots).bytes);
  EXPECT_EQ(FitBySize(slots).bytes, 1280u);
}

TEST(FitTest, BySizeOthersLieInASlotBetweenItsStays) {
  Slot slot = Alive(512, 0, 1);
  slot.stays.push_back({4, 5});
  const std::vector<Slot> slots = {slot, Alive(512, 2, 3)};
  EXPECT_EQ(FitBySize(slots).bytes, 512u);
  EXPECT_EQ(FitInOrderOfTime(slots).bytes, 1024u);
}

TEST(FitTest, ASlotIsKeptFreeInEachOfItsStays) {
  Slot slot = Alive(512, 0, 1);
  slot.stays.push_back({4, 5});
  const std::vector<Slot> slots = {slot, Alive(256, 5, 6)};
  EXPECT_EQ(FitBySize(slots).bytes, 768u);
  EXPECT_EQ(FitInOrderOfTime(slots).bytes, 768u);
}

struct TwoStaysSpec {
  uint32_t place_group = 0;
  uint64_t second = 64;  // elements of the second stay
  // Whether a temporary is written and read between the stays, and the second
  // gather waits for that.
  bool temp = false;
};

// A parameter stays twice: it is gathered, read and given up, and then so once
// more.
Graph TwoStays(const TwoStaysSpec& spec) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId shard = b.Buffer("shard", 32);
  const BufferId part = b.Buffer("part", spec.second / 2);
  const BufferId x = b.Buffer("x", 64);
  const auto stay = [&](const char* name, uint64_t count) {
    return b.Buffer(
        {.name = name, .count = count, .place_group = spec.place_group});
  };
  const BufferId one = stay("stay.0", 64);
  const BufferId two = stay("stay.1", spec.second);
  b.Collective("gather.0", test::Spec(CollectiveKind::kAllGather, dp,
                                      Read(shard), Write(one)));
  b.Compute("forward", {Read(one), Write(x)});
  if (spec.temp) {
    const BufferId temp = b.Buffer("temp", 64, Ownership::kOwned);
    b.Compute("make_temp", {Read(x), Write(temp)});
    b.Compute("read_temp", {Read(temp), Write(part)});
  }
  b.Collective("gather.1", test::Spec(CollectiveKind::kAllGather, dp,
                                      Read(part), Write(two)));
  b.Compute("backward", {Read(two)});
  return b.graph();
}

uint64_t OffsetOf(const Plan& plan, const std::string& buffer) {
  for (const Placement& place : plan.placements) {
    if (plan.graph->buffer(place.buffer).name == buffer) return place.offset;
  }
  ADD_FAILURE() << buffer;
  return 0;
}

TEST(PlaceGroupTest, WithoutAGroupEachStayHasAPlaceOfItsOwn) {
  const auto plan = MakePlan(TwoStays({}));
  EXPECT_NE(OffsetOf(*plan, "stay.0"), OffsetOf(*plan, "stay.1"));
  EXPECT_EQ(plan->arena_bytes, 512u);
  EXPECT_THAT(Waits(*plan, "gather.1"), ElementsAre("backward-1"));
  EXPECT_EQ(plan->place_groups.num_groups, 0u);
}

TEST(PlaceGroupTest, StaysLieAtOneOffsetAndTakeTurnsWithoutALimit) {
  const auto plan = MakePlan(TwoStays({.place_group = 9}));
  EXPECT_EQ(OffsetOf(*plan, "stay.0"), OffsetOf(*plan, "stay.1"));
  EXPECT_EQ(plan->arena_bytes, 256u);
  EXPECT_THAT(Waits(*plan, "gather.1"), ElementsAre("forward"));
  EXPECT_THAT(Waits(*plan, "gather.0"), ElementsAre("backward-1"));
}

TEST(PlaceGroupTest, ThePlaceIsThatOfTheLargest) {
  const auto plan = MakePlan(TwoStays({.place_group = 9, .second = 256}));
  EXPECT_EQ(OffsetOf(*plan, "stay.0"), OffsetOf(*plan, "stay.1"));
  EXPECT_EQ(plan->arena_bytes, 1024u);
}

TEST(PlaceGroupTest, UnderALimitOthersLieThereBetweenTwoStays) {
  const auto plan =
      MakePlan(TwoStays({.place_group = 9, .temp = true}), Arena(256));
  EXPECT_EQ(plan->arena_bytes, 256u);
  EXPECT_EQ(OffsetOf(*plan, "temp"), OffsetOf(*plan, "stay.0"));
  EXPECT_EQ(OffsetOf(*plan, "temp"), OffsetOf(*plan, "stay.1"));
  EXPECT_THAT(Waits(*plan, "gather.0"), ElementsAre("backward-1"));
}

TEST(PlaceGroupTest, TooSmallALimitNamesTheLeastSizeWithGroups) {
  EXPECT_THAT(
      BuildPlan(TwoStays({.place_group = 9, .second = 256}), Arena(512), {}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "the least size that works is 1024 bytes"));
}

// a0 and b are alive together, then b and c, then c and a1: c may lie where a0
// was, unless a1 does.
TEST(PlaceGroupTest, TheReportSaysWhatTheGroupsAddToTheArena) {
  GraphBuilder b;
  std::vector<BufferId> buffers;
  for (const char* name : {"a0", "b", "c", "a1"}) {
    const bool stays = name[0] == 'a';
    buffers.push_back(
        b.Buffer({.name = name, .count = 64, .place_group = stays ? 1u : 0u}));
  }
  b.Compute("make_a0", {Write(buffers[0])});
  for (int i = 1; i < 4; ++i) {
    b.Compute(absl::StrFormat("make_%d", i), {Write(buffers[i])});
    b.Compute(absl::StrFormat("read_%d", i),
              {Read(buffers[i - 1]), Read(buffers[i])});
  }
  const auto plan = MakePlan(b.graph());
  EXPECT_EQ(plan->place_groups.num_groups, 1u);
  EXPECT_EQ(plan->place_groups.bytes, 768u);
  EXPECT_EQ(plan->place_groups.bytes_apart, 512u);
  EXPECT_EQ(plan->place_groups.more(), 256u);
}

TEST(PlaceGroupTest, WhoIsNeverUsedTakesNoTurn) {
  GraphBuilder b;
  const BufferId used =
      b.Buffer({.name = "used", .count = 64, .place_group = 1});
  b.Buffer({.name = "idle", .count = 64, .place_group = 1});
  const BufferId temp = b.Buffer("temp", 64, Ownership::kOwned);
  b.Compute("use", {Write(used)});
  b.Compute("use_temp", {Write(temp)});
  EXPECT_EQ(MakePlan(b.graph(), Arena(256))->arena_bytes, 256u);
}

TEST(PlaceGroupTest, BuffersThatAreAliveAtOnceAreRefused) {
  GraphBuilder b;
  const BufferId one = b.Buffer({.name = "one", .count = 64, .place_group = 1});
  const BufferId two = b.Buffer({.name = "two", .count = 64, .place_group = 1});
  b.Compute("make_one", {Write(one)});
  b.Compute("make_two", {Write(two)});
  b.Compute("read_one", {Read(one)});
  EXPECT_THAT(BuildPlan(b.graph(), {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "buffers 'one' and 'two' of place group 1 are alive"));
}

}  // namespace
}  // namespace commsched

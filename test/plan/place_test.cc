#include "plan/place.h"

#include <cstdint>
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

Lifetime Alive(uint64_t bytes, uint32_t begin, uint32_t end) {
  Lifetime lifetime;
  lifetime.buffer = BufferId(0);
  lifetime.bytes = bytes;
  lifetime.begin = begin;
  lifetime.end = end;
  return lifetime;
}

TEST(FitTest, InOrderOfTimeTakesTheSmallestHoleThatHolds) {
  // A hole of 512 and one of 256 open up; 256 goes into the latter.
  const std::vector<Lifetime> lifetimes = {Alive(512, 0, 1), Alive(256, 0, 9),
                                           Alive(256, 0, 1), Alive(256, 0, 9),
                                           Alive(256, 2, 9)};
  const Fit fit = FitInOrderOfTime(lifetimes);
  EXPECT_EQ(fit.offsets[4], fit.offsets[2]);
  EXPECT_EQ(fit.bytes, 1280u);
}

TEST(FitTest, InOrderOfTimeJoinsNeighbouringHoles) {
  const std::vector<Lifetime> lifetimes = {Alive(256, 0, 0), Alive(256, 0, 1),
                                           Alive(512, 2, 3)};
  EXPECT_EQ(FitInOrderOfTime(lifetimes).bytes, 512u);
}

TEST(FitTest, TouchingLifetimesOverlap) {
  const std::vector<Lifetime> lifetimes = {Alive(256, 0, 1), Alive(256, 1, 2)};
  EXPECT_EQ(FitInOrderOfTime(lifetimes).bytes, 512u);
  EXPECT_EQ(FitBySize(lifetimes).bytes, 512u);
}

TEST(FitTest, BySizeIsTighterWhereOrderOfTimeFragments) {
  // In order of time the small one takes the bottom and the large ones cannot
  // follow each other there.
  const std::vector<Lifetime> lifetimes = {Alive(256, 0, 2), Alive(512, 1, 1),
                                           Alive(1024, 3, 3), Alive(256, 2, 4)};
  EXPECT_GT(FitInOrderOfTime(lifetimes).bytes, FitBySize(lifetimes).bytes);
  EXPECT_EQ(FitBySize(lifetimes).bytes, 1280u);
}

}  // namespace
}  // namespace commsched

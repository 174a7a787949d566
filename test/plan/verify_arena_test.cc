#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::MakePlan;
using test::Read;
using test::Write;

TEST(VerifyArenaTest, ReadingWhatAnotherBufferOverwroteIsRefused) {
  test::GraphBuilder b;
  const BufferId first = b.Buffer("first", 64, Ownership::kOwned);
  const BufferId second = b.Buffer("second", 64, Ownership::kOwned);
  const OpId one = b.Compute("write.first", {Write(first)});
  b.Compute("write.second", {Write(second)}, {}, {one});
  b.Compute("read.both", {Read(first), Read(second)});
  Plan plan = *MakePlan(b.graph());
  ASSERT_OK(VerifyPlan(plan));
  // One lane: whoever takes the memory over is ordered after who had it.
  plan.placements[1].offset = plan.placements[0].offset;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(absl::StatusCode::kInternal,
                       "arena overlap: when 'read.both' uses buffer 'first', "
                       "its memory holds buffer 'second'"));
}

// Two buffers of a place group: 'one' is written and read, then 'two' is.
Graph TwoInAGroup() {
  test::GraphBuilder b;
  const BufferId one = b.Buffer({.name = "one", .count = 64, .place_group = 4});
  const BufferId two = b.Buffer({.name = "two", .count = 64, .place_group = 4});
  b.Compute("write.one", {Write(one)});
  b.Compute("read.one", {Read(one)}, test::OnLane(1));
  b.Compute("write.two", {Write(two)});
  return b.graph();
}

TEST(VerifyArenaTest, APlaceGroupAtTwoOffsetsIsRefused) {
  Plan plan = *MakePlan(TwoInAGroup());
  ASSERT_OK(VerifyPlan(plan));
  plan.placements[1].offset = 256;
  plan.arena_bytes = 512;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(absl::StatusCode::kInternal,
                       "buffers 'one' and 'two' of place group 4 lie at 0 and "
                       "256, not at one offset"));
}

TEST(VerifyArenaTest, TakingAPlaceOverTooEarlyIsRefused) {
  Plan plan = *MakePlan(TwoInAGroup());
  ASSERT_EQ(plan.nodes[2].waits.size(), 1u);
  // What orders the two accesses to 'one' across the step boundary stays.
  const NodeRef reader = plan.nodes[2].waits[0].producer;
  plan.nodes[0].waits.push_back({reader, 1, WaitCause::kHazard});
  ASSERT_OK(VerifyPlan(plan));
  plan.nodes[2].waits.clear();
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(absl::StatusCode::kInternal,
                       "race in the arena: 'write.two' may write buffer "
                       "'two' while "));
}

TEST(VerifyArenaTest, BuffersOfAPlaceGroupThatOverlapInTimeAreRefused) {
  // The plan of another graph, in which they lie apart.
  test::GraphBuilder b;
  const BufferId one = b.Buffer("one", 64, Ownership::kOwned);
  const BufferId two = b.Buffer("two", 64, Ownership::kOwned);
  b.Compute("write.one", {Write(one)});
  b.Compute("write.two", {Write(two)});
  b.Compute("read.one", {Read(one)});
  b.Compute("read.two", {Read(two)});
  Plan plan = *MakePlan(b.graph());
  auto graph = std::make_shared<Graph>();
  for (Buffer buffer : b.graph().buffers()) {
    buffer.place_group = 4;
    ASSERT_OK(graph->AddBuffer(buffer));
  }
  for (const Op& op : b.graph().ops()) ASSERT_OK(graph->AddOp(op));
  plan.graph = graph;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(absl::StatusCode::kInternal, "not at one offset"));
  plan.placements[1].offset = plan.placements[0].offset;
  EXPECT_FALSE(VerifyPlan(plan).ok());
}

}  // namespace
}  // namespace commsched

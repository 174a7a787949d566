#include "plan/window.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::Waits;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Independent all-reduces of the given sizes in bytes.
Graph AllReduces(const std::vector<uint64_t>& bytes) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    b.AllReduce(absl::StrCat("ar", i), dp,
                b.Buffer(absl::StrCat("x", i), bytes[i] / 4));
  }
  return b.graph();
}

std::shared_ptr<const Plan> Capped(const Graph& graph, uint32_t launches,
                                   uint64_t bytes, uint32_t lanes = 1) {
  PlanOptions options;
  options.max_launches_in_flight = launches;
  options.max_bytes_in_flight = bytes;
  options.num_comm_lanes = lanes;
  return MakePlan(graph, options);
}

TEST(WindowTest, NoCapAddsNoEdge) {
  const auto plan = MakePlan(AllReduces({64, 64}));
  EXPECT_THAT(WindowEdges(*plan), IsEmpty());
}

TEST(WindowTest, ALaunchWaitsForTheOneThatMakesRoom) {
  const auto plan = Capped(AllReduces({64, 64, 64, 64}), 2, 0);
  EXPECT_THAT(Waits(*plan, "ar2"), ElementsAre("#0:window"));
  EXPECT_THAT(Waits(*plan, "ar3"), ElementsAre("#1:window"));
}

TEST(WindowTest, TheWindowKnowsNoStepBoundary) {
  const auto plan = Capped(AllReduces({64, 64, 64, 64}), 2, 0);
  // They imply the hazards, #0-1 and #1-1.
  EXPECT_THAT(Waits(*plan, "ar0"), ElementsAre("#2-1:window"));
  EXPECT_THAT(Waits(*plan, "ar1"), ElementsAre("#3-1:window"));
}

TEST(WindowTest, OneAtATimeWaitsForTheLaunchBefore) {
  const auto plan = Capped(AllReduces({64, 64, 64}), 1, 0);
  EXPECT_THAT(Waits(*plan, "ar0"), Contains("#2-1:window"));
  EXPECT_THAT(Waits(*plan, "ar1"), Contains("#0:window"));
}

TEST(WindowTest, BytesAreCountedLaunchByLaunch) {
  const auto plan = Capped(AllReduces({64, 128, 64, 64}), 0, 200);
  EXPECT_THAT(Waits(*plan, "ar2"), Contains("#0:window"));  // 128 + 64
  EXPECT_THAT(Waits(*plan, "ar3"), Contains("#1:window"));  // 64 + 64
}

TEST(WindowTest, AnOversizedLaunchWaitsUntilTheWindowIsEmpty) {
  const auto plan = Capped(AllReduces({16, 16, 4000, 16}), 0, 100);
  EXPECT_THAT(Waits(*plan, "ar2"), Contains("#1:window"));
  EXPECT_THAT(Waits(*plan, "ar3"), Contains("#2:window"));
}

TEST(WindowTest, AWaitThatAHazardImpliesIsNotKept) {
  // The gather of bucket b waits for its optimizer, which waited for all
  // reductions: a window of 8 adds nothing to a step of 8 launches.
  const auto plan = Capped(test::ZeroStep(), 8, 0);
  for (const Launch& launch : plan->launches) {
    for (const Wait& wait : launch.waits) {
      EXPECT_NE(wait.cause, WaitCause::kWindow);
    }
  }
}

TEST(WindowTest, EachLaneIsWaitedForSinceLanesDoNotOrderEachOther) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const GroupId tp = b.Group("tp", 2);
  for (int i = 0; i < 4; ++i) {
    b.AllReduce(absl::StrCat("ar", i), i % 2 == 0 ? dp : tp,
                b.Buffer(absl::StrCat("x", i), 16));
  }
  const auto plan = Capped(b.graph(), 2, 0, /*lanes=*/2);
  EXPECT_THAT(Waits(*plan, "ar3"), Contains("#1:window"));
  EXPECT_THAT(Waits(*plan, "ar3"), Contains("#0:window"));
}

}  // namespace
}  // namespace commsched

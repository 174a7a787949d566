#include "plan/verify/verify.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::MakePlan;
using test::ZeroStep;

constexpr auto kInternal = absl::StatusCode::kInternal;

Plan PlanOfAZeroStep(const PlanOptions& options = {}) {
  return *MakePlan(ZeroStep(), options);
}

ComputeNode& NodeOf(Plan* plan, const std::string& name) {
  return plan->nodes[plan->node_of_op[plan->graph->FindOp(name)->value()]];
}

TEST(VerifyTest, AcceptsWhatThePlannerMakes) {
  EXPECT_OK(VerifyPlan(PlanOfAZeroStep()));
}

TEST(VerifyTest, NamesOpsBufferAndMissingEdgeOfARaceInTheStep) {
  Plan plan = PlanOfAZeroStep();
  NodeOf(&plan, "norm").waits.clear();
  EXPECT_THAT(
      VerifyPlan(plan),
      StatusIs(kInternal,
               "race on buffer 'gshard.0': read-after-write: nothing makes "
               "'norm' wait for 'rs.0'; the edge launch 3 ('rs.0') -> 'norm' "
               "of distance 0 is missing"));
}

TEST(VerifyTest, NamesARaceAcrossTheStepBoundary) {
  Plan plan = PlanOfAZeroStep();
  NodeOf(&plan, "fwd.1").waits.clear();
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal,
                       "race on buffer 'param.1': read-after-write: nothing "
                       "makes 'fwd.1' wait for 'ag.1' of the step before"));
}

TEST(VerifyTest, NamesAWaitThatGoesRoundInACircle) {
  Plan plan = PlanOfAZeroStep();
  plan.launches[0].waits.push_back(
      {{NodeRef::Kind::kLaunch, 2}, 0, WaitCause::kHazard});
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal,
                       "deadlock: launch 0 ('rs.3') waits for launch 2 "
                       "('rs.1'), which comes due only after it"));
}

TEST(VerifyTest, NamesAnOpThatNeedsALaunchThatIsDueLater) {
  Plan plan = PlanOfAZeroStep();
  NodeOf(&plan, "bwd.2").needs.push_back(LaunchId(3));
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal,
                       "deadlock: 'bwd.2' needs launch 3 ('rs.0'), which is "
                       "due only after 'bwd.0'"));
}

TEST(VerifyTest, ALaunchThatIsDueTooEarlyIsRefused) {
  Plan plan = PlanOfAZeroStep();
  plan.due_after[2] = 0;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal, "due after 7 calls, not 0"));
}

TEST(VerifyTest, ALaunchMustCountTheOpsWhoseEventsItAwaits) {
  Plan plan = PlanOfAZeroStep();
  Launch& launch = plan.launches[7];
  launch.producers.clear();
  plan.due_after[7] = plan.due_after[6];
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal,
                       "deadlock: launch 7 ('ag.3') waits for "
                       "'opt.3', which comes due only after it"));
}

TEST(VerifyTest, AnOpThatIsPlannedTwiceIsRefused) {
  Plan plan = PlanOfAZeroStep();
  plan.launches[1].members.push_back(plan.launches[1].members[0]);
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal, "'rs.2' is planned 2 times"));
}

TEST(VerifyTest, NamesWhatOverflowsTheWindow) {
  PlanOptions options;
  options.max_launches_in_flight = 1;
  Plan plan = PlanOfAZeroStep(options);
  for (Launch& launch : plan.launches) {
    auto window = [](const Wait& wait) {
      return wait.cause == WaitCause::kWindow;
    };
    launch.waits.erase(
        std::remove_if(launch.waits.begin(), launch.waits.end(), window),
        launch.waits.end());
  }
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal,
                       "when launch 1 ('rs.2') starts, 2 launches "
                       "may be in flight; the cap is 1"));
}

TEST(VerifyTest, BytesInFlightAreHeldToTheCap) {
  Plan plan = PlanOfAZeroStep();
  plan.options.max_bytes_in_flight = 20000;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal,
                       "32768 bytes may be in flight in 2 launches; "
                       "the cap is 20000"));
}

TEST(VerifyTest, NamesBuffersThatShareMemoryWhileBothLive) {
  Plan plan = PlanOfAZeroStep();
  plan.placements[2].offset = plan.placements[0].offset;  // grad.1 on grad.0
  EXPECT_THAT(VerifyPlan(plan), StatusIs(kInternal, "in the arena: "));
  EXPECT_THAT(VerifyPlan(plan), StatusIs(kInternal, "buffer 'grad.0'"));
}

TEST(VerifyTest, APlaceOutsideTheArenaIsRefused) {
  Plan plan = PlanOfAZeroStep();
  plan.placements[0].offset = plan.arena_bytes;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal, "does not lie in an arena"));
}

TEST(VerifyTest, AnOwnedBufferWithoutAPlaceIsRefused) {
  Plan plan = PlanOfAZeroStep();
  plan.placements.erase(plan.placements.begin());
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(kInternal, "buffer 'grad.0' has no place"));
}

TEST(VerifyTest, AnExplicitEdgeMustHoldEvenWithoutAConflict) {
  test::GraphBuilder b;
  const OpId first = b.Compute("first", {});
  b.Compute("second", {}, test::OnLane(1), {first});
  Plan plan = *MakePlan(b.graph());
  NodeOf(&plan, "second").waits.clear();
  EXPECT_THAT(VerifyPlan(plan), StatusIs(kInternal,
                                         "explicit edge broken: nothing makes "
                                         "'second' wait for 'first'"));
}

// The producer is known only through a path, and its lane has an op beside it
// that nobody waits for, so that no prefix of the lane is known.
TEST(VerifyTest, FollowsPathsThatNoClockHolds) {
  test::GraphBuilder b;
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  const BufferId z = b.Buffer("z", 8);
  b.Compute("beside", {test::Write(z)});
  const OpId make = b.Compute("make", {test::Write(x)});
  b.Compute("pass", {test::Read(x), test::Write(y)}, test::OnLane(1));
  b.Compute("take", {test::Read(y)}, test::OnLane(2), {make});
  Plan plan = *MakePlan(b.graph());
  WaitList& waits = NodeOf(&plan, "take").waits;
  // What the clock cannot imply the planner keeps; the search can do without.
  ASSERT_EQ(waits.size(), 2u);
  waits.erase(std::remove_if(waits.begin(), waits.end(),
                             [&](const Wait& wait) {
                               return wait.producer.index == make.value();
                             }),
              waits.end());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_OK(VerifyPlan(plan));
}

}  // namespace
}  // namespace commsched

#include "plan/planner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::Waits;
using test::ZeroStep;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlannerTest, ZeroStepKeepsOnlyTheEventsThatMatter) {
  ASSERT_OK_AND_ASSIGN(auto plan, BuildPlan(ZeroStep(), {}, {}));
  ASSERT_EQ(plan->launches.size(), 8u);
  EXPECT_THAT(Waits(*plan, "fwd.0"), ElementsAre("#4-1"));
  EXPECT_THAT(Waits(*plan, "fwd.3"), ElementsAre("#7-1"));
  EXPECT_THAT(Waits(*plan, "bwd.3"), IsEmpty());
  EXPECT_THAT(Waits(*plan, "rs.3"), ElementsAre("bwd.3"));
  EXPECT_THAT(Waits(*plan, "norm"), ElementsAre("#3"));
  EXPECT_THAT(Waits(*plan, "opt.2"), IsEmpty());
  EXPECT_THAT(Waits(*plan, "ag.2"), ElementsAre("opt.2"));
}

TEST(PlannerTest, SerialOpsWaitForEveryLaunchDueBeforeThem) {
  PlanOptions options;
  options.schedule = Schedule::kSerial;
  ASSERT_OK_AND_ASSIGN(auto plan, BuildPlan(ZeroStep(), options, {}));
  EXPECT_THAT(Waits(*plan, "fwd.0"), ElementsAre("#7-1:serial"));
  EXPECT_THAT(Waits(*plan, "fwd.1"), IsEmpty());
  EXPECT_THAT(Waits(*plan, "bwd.2"), ElementsAre("#0:serial"));
  EXPECT_THAT(Waits(*plan, "opt.1"), ElementsAre("#4:serial"));
}

TEST(PlannerTest, LaunchesAreDueOnceTheirLastProducerWasCalled) {
  ASSERT_OK_AND_ASSIGN(auto plan, BuildPlan(ZeroStep(), {}, {}));
  EXPECT_THAT(plan->due_after, ElementsAre(5, 6, 7, 8, 10, 11, 12, 13));
}

TEST(PlannerTest, MoreLanesThanThereAreIsRefused) {
  PlanOptions options;
  options.num_comm_lanes = kMaxCommLanes + 1;
  EXPECT_THAT(BuildPlan(ZeroStep(), options, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_comm_lanes is 17; it must be 1 to 16"));
}

TEST(PlannerTest, AProfileOfAnotherGraphIsRefused) {
  CostProfile profile;
  profile.op_cost_ns = {1, 2, 3};
  EXPECT_THAT(BuildPlan(ZeroStep(), {}, profile),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "measured 3 ops; the graph has 21"));
}

}  // namespace
}  // namespace commsched

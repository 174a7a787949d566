#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::MakePlan;

TEST(VerifyPiecesTest, PiecesOnTwoLanesAreRefusedThoughBothLanesExist) {
  test::GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 1000);
  b.Compute("write", {test::Write(x)});
  b.AllReduce("ar", dp, x);
  PlanOptions options;
  options.partition_bytes = 1600;
  options.num_comm_lanes = 2;
  Plan plan = *MakePlan(b.graph(), options);
  ASSERT_GE(plan.launches.size(), 2u);
  ASSERT_OK(VerifyPlan(plan));
  plan.launches[1].lane = 1 - plan.launches[1].lane;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(absl::StatusCode::kInternal,
                       "the pieces of 'ar' are on several lanes"));
}

}  // namespace
}  // namespace commsched

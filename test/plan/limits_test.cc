// Costs and sizes near the ends of the integer types.
#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/predict.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using absl::StatusCode;
using test::GraphBuilder;
using test::Write;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

Graph OneOp(const ComputeSpec& spec) {
  GraphBuilder b;
  b.Compute("op", {}, spec);
  return b.graph();
}

TEST(LimitsTest, DerivedCostAboveTheLimitIsRefused) {
  ComputeSpec spec;
  spec.flops = 1e300;
  EXPECT_THAT(BuildPlan(OneOp(spec), {}, {}),
              StatusIs(StatusCode::kInvalidArgument,
                       "cost of op 'op' is 9000000000000000000 ns; it must be "
                       "0 to 1000000000000000"));
}

TEST(LimitsTest, MeasuredCostAboveTheLimitIsRefused) {
  CostProfile profile;
  profile.op_cost_ns = {kMaxInt64};
  EXPECT_THAT(BuildPlan(OneOp({}), {}, profile),
              StatusIs(StatusCode::kInvalidArgument,
                       "cost of op 'op' is 9223372036854775807 ns"));
  profile.op_cost_ns = {Graph::kMaxCostNs + 1};
  EXPECT_THAT(BuildPlan(OneOp({}), {}, profile),
              StatusIs(StatusCode::kInvalidArgument,
                       "cost of op 'op' is 1000000000000001 ns"));
  profile.op_cost_ns = {Graph::kMaxCostNs};
  EXPECT_OK(BuildPlan(OneOp({}), {}, profile));
}

TEST(LimitsTest, LatencyAndLaunchTimeAboveTheLimitAreRefused) {
  CostProfile profile;
  profile.link_latency_ns = kMaxInt64;
  EXPECT_THAT(
      BuildPlan(OneOp({}), {}, profile),
      StatusIs(StatusCode::kInvalidArgument,
               "profile: link_latency_ns is 9223372036854775807 ns; it must "
               "be 0 to 1000000000000000"));
  profile.link_latency_ns = 0;
  profile.launch_ns = kMaxInt64;
  EXPECT_THAT(BuildPlan(OneOp({}), {}, profile),
              StatusIs(StatusCode::kInvalidArgument, "launch_ns is"));
}

TEST(LimitsTest, StepOfCostsThatFitOneByOneButNotTogetherIsRefused) {
  GraphBuilder b;
  for (int i = 0; i < 100; ++i) {
    b.Compute("op." + std::to_string(i), {},
              test::OnLane(0, Graph::kMaxCostNs));
  }
  EXPECT_THAT(BuildPlan(b.graph(), {}, {}),
              StatusIs(StatusCode::kInvalidArgument,
                       "the ops up to 'op.10' take 1.1e+16 ns; the limit of a "
                       "step is 1e+16"));
}

TEST(LimitsTest, RanksThatShareACoreCountTowardsTheStep) {
  CostProfile profile;
  profile.num_ranks_sharing = std::numeric_limits<uint32_t>::max();
  EXPECT_THAT(
      BuildPlan(OneOp(test::OnLane(0, Graph::kMaxCostNs)), {}, profile),
      StatusIs(StatusCode::kInvalidArgument, "the ops up to 'op' take"));
}

TEST(LimitsTest, TransferThatTakesForEverIsRefused) {
  GraphBuilder b;
  b.AllReduce("sum", b.Group("dp", 2), b.Buffer("grads", 1 << 20));
  CostProfile profile;
  profile.link_bytes_per_s = 1e-300;
  EXPECT_THAT(BuildPlan(b.graph(), {}, profile),
              StatusIs(StatusCode::kInvalidArgument, "the ops up to 'sum' "));
}

TEST(LimitsTest, TheLongestStepIsPredictedWithoutOverflow) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  for (int i = 0; i < 9; ++i) {
    const std::string name = std::to_string(i);
    const BufferId grads = b.Buffer("grads." + name, 64);
    b.Compute("op." + name, {Write(grads)}, test::OnLane(0, Graph::kMaxCostNs));
    b.AllReduce("sum." + name, dp, grads);
  }
  const auto plan = test::MakePlan(b.graph());
  ASSERT_NE(plan, nullptr);
  ASSERT_OK_AND_ASSIGN(const Prediction p, Predict(*plan, {}));
  EXPECT_EQ(p.compute_ns, 9 * Graph::kMaxCostNs);
  EXPECT_GE(p.step_ns, p.compute_ns);
}

TEST(LimitsTest, OwnedBuffersBeyondTwoToThe63BytesAreRefused) {
  GraphBuilder b;
  const uint64_t count = uint64_t{1} << 60;  // 2^62 bytes
  b.Buffer("first", count, Ownership::kOwned);
  b.Buffer("second", count, Ownership::kOwned);
  b.Buffer("third", count, Ownership::kOwned);
  for (const uint64_t arena_bytes : {uint64_t{0}, uint64_t{1} << 20}) {
    PlanOptions options;
    options.arena_bytes = arena_bytes;
    EXPECT_THAT(BuildPlan(b.graph(), options, {}),
                StatusIs(StatusCode::kOutOfRange,
                         "arena: buffer 'second' of 4611686018427387904 bytes "
                         "comes on top of 4611686018427387904; the limit of "
                         "all is 9223372036854775807 bytes"));
  }
}

TEST(LimitsTest, OwnedBuffersThatWrapAroundAreRefused) {
  GraphBuilder b;
  const uint64_t count = (uint64_t{1} << 61) - 1;  // 2^63-4 bytes
  for (const char* name : {"a", "b", "c"}) {
    b.Buffer(name, count, Ownership::kOwned);
  }
  EXPECT_THAT(BuildPlan(b.graph(), {}, {}),
              StatusIs(StatusCode::kOutOfRange, "arena: buffer 'a' of "));
}

TEST(LimitsTest, CollectivesOfMoreThanAnExbibyteAreRefused) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const uint64_t count = uint64_t{1} << 57;  // 2^59 bytes
  for (const char* name : {"a", "b", "c"}) {
    b.AllReduce(std::string("sum_") + name, dp, b.Buffer(name, count));
  }
  CostProfile profile;
  profile.link_bytes_per_s = profile.copy_bytes_per_s = 1e30;
  EXPECT_THAT(BuildPlan(b.graph(), {}, profile),
              StatusIs(StatusCode::kOutOfRange,
                       "collective 'sum_c' of 576460752303423488 bytes comes "
                       "on top of 1152921504606846976; the limit of a step is "
                       "1152921504606846976 bytes"));
}

}  // namespace
}  // namespace commsched

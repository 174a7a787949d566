#include "plan/identity/fingerprint.h"

#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::MakePlan;
using test::ZeroStep;
using ::testing::HasSubstr;

PlanOptions MergingAll() {
  PlanOptions options;
  options.coalesce_bytes = 40000;
  options.max_launches_in_flight = 2;
  return options;
}

TEST(FingerprintTest, EqualInputsGiveEqualBytes) {
  const auto a = MakePlan(ZeroStep(), MergingAll());
  const auto b = MakePlan(ZeroStep(), MergingAll());
  EXPECT_EQ(a->fingerprint, b->fingerprint);
  EXPECT_EQ(CanonicalLines(*a), CanonicalLines(*b));
}

// Written down, so that a hash that is seeded per process, or that depends on
// the compiler, would be noticed.
TEST(FingerprintTest, IsTheSameInEveryProcess) {
  test::GraphBuilder b;
  b.AllReduce("sum", b.Group("dp", 2), b.Buffer("x", 8));
  const Fingerprint expected = {0x41, 0x04, 0x5f, 0x35, 0x08, 0x6d, 0x1b, 0xa2,
                                0x33, 0x40, 0xcb, 0xa3, 0x7c, 0x24, 0x67, 0x1f};
  EXPECT_EQ(MakePlan(b.graph())->fingerprint, expected);
}

TEST(FingerprintTest, DoesNotCoverCosts) {
  CostProfile slow;
  slow.flops_per_s = 1;
  slow.link_latency_ns = 1000000;
  EXPECT_EQ(MakePlan(ZeroStep(), MergingAll())->fingerprint,
            MakePlan(ZeroStep(), MergingAll(), slow)->fingerprint);
}

TEST(FingerprintTest, EveryPartOfThePlanCounts) {
  const auto plan = MakePlan(ZeroStep(), MergingAll());
  const std::vector<std::function<void(Plan*)>> changes = {
      [](Plan* p) { p->options.deterministic = true; },
      [](Plan* p) { p->options.max_bytes_in_flight = 9; },
      [](Plan* p) { std::swap(p->launches[0], p->launches[1]); },
      [](Plan* p) {
        std::swap(p->launches[0].members[0], p->launches[0].members[1]);
      },
      [](Plan* p) { p->launches[0].way = Way::kPack; },
      [](Plan* p) { p->launches[0].reduce_op = ReduceOp::kMax; },
      [](Plan* p) { p->launches[0].dtype = DType::kI32; },
      [](Plan* p) { p->launches[0].waits.clear(); },
      [](Plan* p) { p->launches[0].waits[0].distance = 1; },
      [](Plan* p) { p->launches[0].producers.clear(); },
      [](Plan* p) { p->nodes[0].waits.clear(); },
      [](Plan* p) { p->nodes[1].after.clear(); },
      [](Plan* p) { p->due_after[0] = 0; },
      [](Plan* p) { p->placements[0].offset += 256; },
      [](Plan* p) { p->arena_bytes += 256; },
      [](Plan* p) {
        p->graph =
            std::make_shared<const Graph>(ZeroStep({.buckets = 4, .ranks = 2}));
      },
      [](Plan* p) {
        p->graph = std::make_shared<const Graph>(ZeroStep({.count = 8192}));
      },
      [](Plan* p) {
        p->graph = std::make_shared<const Graph>(
            ZeroStep({.gradients = Ownership::kBound}));
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    Plan changed = *plan;
    changes[i](&changed);
    EXPECT_NE(FingerprintOf(changed), plan->fingerprint);
    EXPECT_NE(CanonicalLines(changed), CanonicalLines(*plan));
  }
}

}  // namespace
}  // namespace commsched

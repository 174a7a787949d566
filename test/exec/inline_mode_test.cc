#include "exec/inline_mode.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Buckets;
using test::IssuerRig;
using test::IssuerRigSpec;
using test::With;

IssuerRigSpec Inline(Graph graph, PlanOptions options = {}) {
  return {.graph = std::move(graph),
          .options = options,
          .mode = IssuerRigSpec::Mode::kInline};
}

TEST(InlineModeTest, ALaunchIsCompleteWhenItHasBeenMadeDue) {
  IssuerRig rig(Inline(Buckets(2)));
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.Launched(), "sum_a@0");
  EXPECT_TRUE(rig.HasCompleted("sum_a"));
  EXPECT_FALSE(rig.HasCompleted("sum_b"));
}

TEST(InlineModeTest, LaunchesGoInKeyOrderOverSteps) {
  IssuerRig rig(Inline(Buckets(2)));
  rig.issuer().MakeDue(2, 0);
  rig.issuer().MakeDue(3, 0);
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_b@0 sum_a@1");
  EXPECT_EQ(rig.issuer().totals().launches, 3u);
}

// Whoever waits for `due` reads the result next.
TEST(InlineModeTest, ALaunchIsNotDueForOthersBeforeItIsComplete) {
  IssuerRig rig(Inline(Buckets(1)));
  uint64_t due_at_launch = 99;
  rig.backend().on_launch = [&](const auto&) {
    due_at_launch = rig.issuer().due();
  };
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(due_at_launch, 0u);
  EXPECT_EQ(rig.issuer().due(), 1u);
}

TEST(InlineModeTest, NothingIsPolledAndNothingIsAwaited) {
  IssuerRig rig(Inline(Buckets(1)));
  rig.issuer().MakeDue(1, 0);
  EXPECT_FALSE(rig.issuer().Pump());
  EXPECT_EQ(rig.backend().num_polls(), 0u);
  EXPECT_EQ(rig.issuer().NextWakeNs(), kNoDeadlineNs);
  EXPECT_TRUE(rig.program().events.empty());
}

// Two buckets in one launch of staging memory.
TEST(InlineModeTest, PackedMembersAreCopiedInBeforeAndOutAfterTheLaunch) {
  IssuerRig rig(Inline(Buckets(2), With(&PlanOptions::coalesce_bytes, 1000)));
  ASSERT_EQ(rig.program().launches.size(), 1u);
  ASSERT_NE(rig.program().launches[0].staging_in.count, 0u);
  for (int i = 0; i < 4; ++i) {
    rig.Memory("a")[i] = 1;
    rig.Memory("b")[i] = 2;
  }
  rig.backend().on_launch = [&](const auto& launched) {
    const commsched_member_t& packed = launched.call->members[0];
    ASSERT_EQ(packed.count, 8u);
    const float* in = static_cast<const float*>(packed.input);
    EXPECT_EQ(in[3], 1);
    EXPECT_EQ(in[4], 2);
    EXPECT_EQ(rig.Memory("b")[0], 2);
    float* out = static_cast<float*>(packed.output);
    for (int i = 0; i < 8; ++i) out[i] = static_cast<float>(10 + i);
  };
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.Memory("a")[3], 13);
  EXPECT_EQ(rig.Memory("b")[0], 14);
}

TEST(InlineModeTest, NothingIsIssuedAfterALaunchThatFailed) {
  IssuerRig rig(Inline(Buckets(2)));
  rig.issuer();
  rig.backend().launch_error = "cable";
  rig.issuer().MakeDue(2, 0);
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kUnavailable, "'sum_a'"));
  rig.backend().launch_error.clear();
  rig.issuer().MakeDue(4, 0);
  EXPECT_EQ(rig.Launched(), "");
  EXPECT_FALSE(rig.HasCompleted("sum_a"));
}

TEST(InlineModeTest, OneLaunchAtATimeIsInFlight) {
  IssuerRig rig(Inline(Buckets(3)));
  rig.issuer().MakeDue(3, 0);
  EXPECT_EQ(rig.issuer().window().peak_launches(), 1u);
  EXPECT_EQ(rig.issuer().window().peak_bytes(), 16u);
}

}  // namespace
}  // namespace commsched

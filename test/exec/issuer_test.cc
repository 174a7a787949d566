#include "exec/issuer.h"

#include <string>

#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Buckets;
using test::IssuerRig;
using test::IssuerRigSpec;

// In each mode.
class IssuerTest : public testing::TestWithParam<IssuerRigSpec::Mode> {
 protected:
  IssuerRig rig_{{.graph = Buckets(2), .mode = GetParam()}};
};

TEST_P(IssuerTest, TheFirstFailureSticksAndAbortsOnce) {
  rig_.issuer().Fail(absl::AbortedError("first"));
  rig_.issuer().Fail(absl::InternalError("second"));
  EXPECT_THAT(rig_.failure().status(),
              StatusIs(absl::StatusCode::kAborted, "first"));
  ASSERT_EQ(rig_.aborts().size(), 1u);
  EXPECT_THAT(rig_.aborts()[0],
              StatusIs(absl::StatusCode::kAborted, "rank 0: first"));
}

TEST_P(IssuerTest, NothingIsIssuedAfterAFailure) {
  rig_.Make("make_a");
  rig_.Make("make_b");
  rig_.issuer().Fail(absl::AbortedError("stop"));
  rig_.issuer().MakeDue(2, 0);
  rig_.PumpAll();
  EXPECT_EQ(rig_.Launched(), "");
  EXPECT_EQ(rig_.issuer().NextWakeNs(), kNoDeadlineNs);
}

TEST_P(IssuerTest, AFailureFreesWhoeverWaitsForALaunch) {
  rig_.issuer().Fail(absl::AbortedError("stop"));
  for (const LaunchProgram& launch : rig_.program().launches) {
    EXPECT_TRUE(launch.event == nullptr || launch.event->IsComplete(1));
  }
  rig_.issuer().AwaitRetired(0);
}

// A worker that has not run yet is no failure's business: its op's event says
// when its memory is free.
TEST_P(IssuerTest, AFailureLeavesTheEventsOfComputeOpsAlone) {
  rig_.issuer().Fail(absl::AbortedError("stop"));
  for (const NodeProgram& node : rig_.program().nodes) {
    EXPECT_FALSE(node.event != nullptr && node.event->IsComplete(1));
  }
}

TEST_P(IssuerTest, TotalsCountWhatHasCompleted) {
  rig_.Make("make_a");
  rig_.Make("make_b");
  rig_.issuer().MakeDue(2, 0);
  rig_.PumpAll();
  for (size_t i = 0; i < rig_.backend().launched().size(); ++i) {
    rig_.backend().Finish(i);
  }
  if (GetParam() == IssuerRigSpec::Mode::kEnqueued) {
    rig_.EndOnDevice("sum_a");
    rig_.EndOnDevice("sum_b");
  }
  rig_.PumpAll();
  const Issuer::Totals totals = rig_.issuer().totals();
  EXPECT_EQ(totals.launches, 2u);
  EXPECT_EQ(totals.collectives, 2u);
  EXPECT_EQ(totals.bytes, 32u);
}

std::string ModeName(const testing::TestParamInfo<IssuerRigSpec::Mode>& mode) {
  switch (mode.param) {
    case IssuerRigSpec::Mode::kPolled:
      return "polled";
    case IssuerRigSpec::Mode::kInline:
      return "inline";
    case IssuerRigSpec::Mode::kEnqueued:
      return "enqueued";
  }
  return "unknown";
}

INSTANTIATE_TEST_SUITE_P(Modes, IssuerTest,
                         testing::Values(IssuerRigSpec::Mode::kPolled,
                                         IssuerRigSpec::Mode::kInline,
                                         IssuerRigSpec::Mode::kEnqueued),
                         ModeName);

}  // namespace
}  // namespace commsched

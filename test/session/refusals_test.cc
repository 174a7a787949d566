// Calls that would go wrong quietly, were they not refused.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "session/session.h"
#include "test/recording/recording_rig.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

WorldSpec OneRank() {
  WorldSpec spec;
  spec.size = 1;
  return spec;
}

// It can be called again once that op has had its after.
TEST(RefusalsTest, ABeforeThatIsEarlyIsUnavailableAndNamesTheOpItWaitsFor) {
  test::GraphBuilder b;
  const BufferId x = b.Buffer("x", 4);
  b.Compute("first", {test::Write(x)});
  const OpId second = b.Compute("second", {test::Read(x)});
  const OpId first(0);
  test::SessionRig rig(OneRank(), b.graph(), {});
  const auto session = Session::Create(rig.Spec(0)).value();
  ASSERT_OK(session->StepBegin());
  EXPECT_THAT(session->Before(second, CallerStream()),
              StatusIs(absl::StatusCode::kUnavailable,
                       "'second': not yet: waits for op 'first'"));
  EXPECT_OK(session->status());
  ASSERT_OK(session->Before(first, CallerStream()));
  EXPECT_THAT(session->Before(second, CallerStream()),
              StatusIs(absl::StatusCode::kUnavailable, "op 'first'"));
  ASSERT_OK(session->After(first, CallerStream()));
  EXPECT_OK(session->Before(second, CallerStream()));
  EXPECT_THAT(session->Before(second, CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "second time"));
  EXPECT_OK(session->After(second, CallerStream()));
  EXPECT_OK(session->StepEnd());
}

// The launch that it needs, rather than the op itself, waits for another op.
TEST(RefusalsTest, ABeforeWhoseLaunchIsNotDueIsUnavailable) {
  test::GraphBuilder b;
  const GroupId dp = b.Group("dp", 1);
  const BufferId x = b.Buffer("x", 4);
  const OpId make = b.Compute("make", {test::Write(x)});
  b.AllReduce("reduce", dp, x);
  const OpId use = b.Compute("use", {test::Read(x)});
  test::SessionRig rig(OneRank(), b.graph(), {});
  const auto session = Session::Create(rig.Spec(0)).value();
  ASSERT_OK(session->StepBegin());
  EXPECT_THAT(session->Before(use, CallerStream()),
              StatusIs(absl::StatusCode::kUnavailable,
                       "'use': not yet: waits for op 'make'"));
  ASSERT_OK(session->Before(make, CallerStream()));
  ASSERT_OK(session->After(make, CallerStream()));
  EXPECT_OK(session->Before(use, CallerStream()));
  EXPECT_OK(session->After(use, CallerStream()));
  EXPECT_OK(session->StepEnd());
}

TEST(RefusalsTest, RanksThatDeclareDifferentThingsAreNamed) {
  test::ModulesSpec spec;
  spec.ranks = 2;
  std::vector<float> extra(4);
  const std::vector<absl::Status> statuses =
      test::RunModules(spec, [&](test::ModulesRank& rank) -> absl::Status {
        if (rank.rank() == 1) {
          Buffer buffer;
          buffer.name = "extra";
          buffer.ownership = Ownership::kBound;
          buffer.count = extra.size();
          RETURN_IF_ERROR(
              rank.recording().AddBuffer(buffer, extra.data()).status());
        }
        for (int step = 0; step < 3; ++step) {
          RETURN_IF_ERROR(rank.Step({0, 1}, step));
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "have declared different"));
  }
}

}  // namespace
}  // namespace commsched

// Which call may come when within a step.
#include <memory>

#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::Call;
using test::MakeBuckets;
using test::Ranks;
using test::RunStep;
using test::SessionRig;

// One rank with the first two of its calls made by the test.
class OneRankSessionTest : public testing::Test {
 protected:
  OneRankSessionTest()
      : made_(MakeBuckets(1, 2, 4)), rig_(Ranks(1), made_.graph, {}) {
    session_ = Session::Create(rig_.Spec(0)).value();
  }
  BucketGraph made_;
  SessionRig rig_;
  std::unique_ptr<Session> session_;
};

TEST_F(OneRankSessionTest, BeforeOutsideAStepIsRefused) {
  EXPECT_THAT(session_->Before(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "'BWD0'"));
}

TEST_F(OneRankSessionTest, BeforeTwiceInAStepIsRefused) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(session_->Before(made_.backward[0], CallerStream()));
  EXPECT_THAT(session_->Before(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD0' was called a second time in step 0"));
}

TEST_F(OneRankSessionTest, AfterWithoutBeforeIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->After(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD0': its before was not called in step 0"));
}

TEST_F(OneRankSessionTest, AfterTwiceIsRefused) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  EXPECT_THAT(session_->After(made_.backward[0], CallerStream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD0': its after was already called"));
}

TEST_F(OneRankSessionTest, BeforeNamesTheOpThatALaunchItNeedsWaitsFor) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  EXPECT_THAT(session_->Before(made_.use[1], CallerStream()),
              StatusIs(absl::StatusCode::kUnavailable, "'BWD1'"));
}

TEST_F(OneRankSessionTest, ACallTooEarlyDoesNotStick) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_FALSE(session_->Before(made_.use[0], CallerStream()).ok());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  ASSERT_OK(Call(*session_, made_.backward[1]));
  EXPECT_OK(Call(*session_, made_.use[0]));
  EXPECT_OK(Call(*session_, made_.use[1]));
  EXPECT_OK(session_->StepEnd());
}

TEST_F(OneRankSessionTest, StepEndNamesTheOpThatIsMissing) {
  ASSERT_OK(session_->StepBegin());
  ASSERT_OK(Call(*session_, made_.backward[0]));
  EXPECT_THAT(session_->StepEnd(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'BWD1': its after was not called"));
}

TEST_F(OneRankSessionTest, StepBeginTwiceIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(
      session_->StepBegin(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "step 0 has not ended"));
}

TEST_F(OneRankSessionTest, ACollectiveHasNoBefore) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Before(made_.reduce[0], CallerStream()),
              StatusIs(absl::StatusCode::kInvalidArgument, "'AR0'"));
}

TEST_F(OneRankSessionTest, AnUnknownOpIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Before(OpId(99), CallerStream()),
              StatusIs(absl::StatusCode::kInvalidArgument, "op 99"));
}

TEST_F(OneRankSessionTest, AStreamThatIsNotTheLanesIsRefused) {
  std::unique_ptr<HostStream> other = HostStream::Create("other", 4).value();
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Before(made_.backward[0], other.get()),
              StatusIs(absl::StatusCode::kInvalidArgument, "lane 0"));
}

TEST_F(OneRankSessionTest, CallsMayComeInAnyOrderThatTheDependenciesAllow) {
  for (int step = 0; step < 3; ++step) {
    ASSERT_OK(session_->StepBegin());
    ASSERT_OK(Call(*session_, made_.backward[1]));
    ASSERT_OK(Call(*session_, made_.backward[0]));
    ASSERT_OK(Call(*session_, made_.use[1]));
    ASSERT_OK(Call(*session_, made_.use[0]));
    ASSERT_OK(session_->StepEnd());
  }
}

TEST_F(OneRankSessionTest, BufferVersionCountsCompleteSteps) {
  EXPECT_EQ(session_->BufferVersion(made_.gradient[0]).value(), 0u);
  ASSERT_OK(RunStep(*session_, rig_, made_, 0));
  ASSERT_OK(session_->Drain());
  EXPECT_EQ(session_->BufferVersion(made_.gradient[0]).value(), 1u);
}

TEST_F(OneRankSessionTest, AddressIsForOpsThatDeclareTheBuffer) {
  EXPECT_EQ(session_->Address(made_.backward[0], made_.gradient[0]).value(),
            rig_.Memory(0, made_.gradient[0]));
  EXPECT_THAT(session_->Address(made_.backward[0], made_.gradient[1]),
              StatusIs(absl::StatusCode::kNotFound, "'grad1'"));
}

TEST_F(OneRankSessionTest, DrainInsideAStepIsRefused) {
  ASSERT_OK(session_->StepBegin());
  EXPECT_THAT(session_->Drain(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "step 0"));
}

}  // namespace
}  // namespace commsched

#include "recording/submissions.h"

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

Op OpOf(const char* name, OpKind kind) {
  Op op;
  op.name = name;
  op.kind = kind;
  return op;
}

class SubmissionsTest : public testing::Test {
 protected:
  SubmissionsTest() {
    submissions_.Add(OpOf("bwd", OpKind::kCompute));
    submissions_.Add(OpOf("ar", OpKind::kCollective));
  }
  Submissions submissions_;
};

TEST_F(SubmissionsTest, TheLatestOfTheStepIsFound) {
  submissions_.BeginStep(7);
  submissions_.Note(1, 3);
  submissions_.Note(1, 5);
  ASSERT_OK_AND_ASSIGN(const Submissions::Latest latest, submissions_.Find(1));
  EXPECT_EQ(latest.step, 7u);
  EXPECT_EQ(latest.call, 5u);
}

TEST_F(SubmissionsTest, OneOfAnEarlierStepIsNone) {
  submissions_.BeginStep(0);
  submissions_.Note(1, Submissions::kComplete);
  EXPECT_EQ(submissions_.Find(1)->call, Submissions::kComplete);
  submissions_.BeginStep(1);
  EXPECT_THAT(submissions_.Find(1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'ar' has not been submitted in step 1"));
}

TEST_F(SubmissionsTest, WhatCannotBeWaitedForIsNamed) {
  EXPECT_THAT(submissions_.Find(1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'ar': no step has begun"));
  EXPECT_THAT(submissions_.Find(0),
              StatusIs(absl::StatusCode::kInvalidArgument, "'bwd'"));
  EXPECT_THAT(submissions_.Find(2), StatusIs(absl::StatusCode::kInvalidArgument,
                                             "op 2 is not among the 2"));
}

}  // namespace
}  // namespace commsched

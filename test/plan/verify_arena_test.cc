#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::MakePlan;
using test::Read;
using test::Write;

TEST(VerifyArenaTest, ReadingWhatAnotherBufferOverwroteIsRefused) {
  test::GraphBuilder b;
  const BufferId first = b.Buffer("first", 64, Ownership::kOwned);
  const BufferId second = b.Buffer("second", 64, Ownership::kOwned);
  const OpId one = b.Compute("write.first", {Write(first)});
  b.Compute("write.second", {Write(second)}, {}, {one});
  b.Compute("read.both", {Read(first), Read(second)});
  Plan plan = *MakePlan(b.graph());
  ASSERT_OK(VerifyPlan(plan));
  // One lane: whoever takes the memory over is ordered after who had it.
  plan.placements[1].offset = plan.placements[0].offset;
  EXPECT_THAT(VerifyPlan(plan),
              StatusIs(absl::StatusCode::kInternal,
                       "arena overlap: when 'read.both' uses buffer 'first', "
                       "its memory holds buffer 'second'"));
}

}  // namespace
}  // namespace commsched

#include "session/freed_work.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Read;
using test::Write;

// `reader` reads `state` and makes what two launches carry; `writer` writes
// `state` for the next step once the second launch is complete.
class FreedWorkTest : public ::testing::Test {
 protected:
  void Make(uint32_t writer_lane) {
    GraphBuilder b;
    const GroupId group = b.Group("dp", 2);
    const BufferId state = b.Buffer("state", 16);
    const BufferId early = b.Buffer("early", 16);
    const BufferId late = b.Buffer("late", 16);
    reader_ = b.Compute("reader", {Read(state), Write(early), Write(late)});
    early_ = b.AllReduce("reduce.early", group, early);
    late_ = b.AllReduce("reduce.late", group, late);
    writer_ =
        b.Compute("writer", {Read(late), Write(state)}, {.lane = writer_lane});
    auto plan = BuildPlan(b.graph(), {}, {});
    ASSERT_OK(plan.status());
    plan_ = *std::move(plan);
    progress_.steps_begun = 1;
    progress_.completed = {0, 0};
    progress_.unguarded = {1, 1};
  }
  void Complete(OpId collective, uint64_t steps) {
    progress_.completed[plan_->LaunchesOf(collective)[0].value()] = steps;
  }
  bool Spoiled(OpId op, uint64_t step = 1) const {
    return SpoiledByFreedWork(*plan_, progress_, 1)[step - 1][op.value()];
  }

  OpId reader_, early_, late_, writer_;
  std::shared_ptr<const Plan> plan_;
  ProgressAtFailure progress_;
};

TEST_F(FreedWorkTest, WhatIsBehindAnIncompleteLaunchIsSpoiled) {
  Make(0);
  EXPECT_TRUE(Spoiled(writer_));
  Complete(late_, 1);
  EXPECT_FALSE(Spoiled(writer_));
}

TEST_F(FreedWorkTest, WhatWasNotEnqueuedIsNotFree) {
  Make(1);
  progress_.unguarded = {1, 0};
  EXPECT_FALSE(Spoiled(writer_));
  EXPECT_FALSE(Spoiled(reader_));
}

TEST_F(FreedWorkTest, WhoReadsWhatFreeWorkOverwritesIsSpoiled) {
  Make(1);
  EXPECT_TRUE(Spoiled(writer_));
  EXPECT_TRUE(Spoiled(reader_));
}

TEST_F(FreedWorkTest, WhoReadsOnTheSameStreamIsNot) {
  Make(0);
  EXPECT_TRUE(Spoiled(writer_));
  EXPECT_FALSE(Spoiled(reader_));
}

TEST_F(FreedWorkTest, WhoIsCompleteBeforeACompleteLaunchIsNot) {
  Make(1);
  Complete(early_, 1);
  EXPECT_TRUE(Spoiled(writer_));
  EXPECT_FALSE(Spoiled(reader_));
}

TEST_F(FreedWorkTest, ALaunchOfTheNextStepTellsToo) {
  Make(1);
  progress_.steps_begun = 2;
  progress_.unguarded = {2, 2};
  Complete(early_, 2);
  Complete(late_, 1);
  EXPECT_FALSE(Spoiled(reader_, 1));
  EXPECT_FALSE(Spoiled(writer_, 1));
  EXPECT_FALSE(Spoiled(reader_, 2));
  EXPECT_TRUE(Spoiled(writer_, 2));
  Complete(early_, 1);
  EXPECT_FALSE(Spoiled(reader_, 1));
  EXPECT_TRUE(Spoiled(reader_, 2));
}

}  // namespace
}  // namespace commsched

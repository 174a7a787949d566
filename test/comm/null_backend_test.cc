#include "comm/null_backend.h"

#include "gtest/gtest.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

std::shared_ptr<World> NullWorld() {
  WorldSpec spec;
  spec.size = 2;
  spec.backend = "null";
  return *World::Create(spec);
}

TEST(NullBackendTest, LaunchesSucceedAtOnceWithoutTheOtherMembers) {
  auto world = NullWorld();
  CommDriver comm;
  ASSERT_OK(comm.Create(world.get(), {}, 0));
  float in = 1, out = 2;
  const commsched_member_t member{&in, &out, 1, nullptr, 0, 0, 0, 0};
  const commsched_launch_t launch = LaunchOf(
      COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1, &member);
  EXPECT_OK(comm.LaunchAndWait(launch));
  EXPECT_EQ(out, 2);
}

TEST(NullBackendTest, IsInlineAndHasNoPoll) {
  const commsched_backend_t* table = NullTable();
  EXPECT_NE(table->capabilities & COMMSCHED_BACKEND_INLINE, 0u);
  EXPECT_EQ(table->poll, nullptr);
}

TEST(NullBackendTest, TheFirstAbortSticks) {
  auto world = NullWorld();
  CommDriver comm;
  ASSERT_OK(comm.Create(world.get(), {}, 1));
  comm.Abort(COMMSCHED_UNAVAILABLE, "first");
  comm.Abort(COMMSCHED_INTERNAL, "second");
  EXPECT_THAT(comm.Launch({}),
              StatusIs(absl::StatusCode::kUnavailable, "first"));
}

TEST(NullBackendTest, ADescriptionThatMakesNoSenseIsRefused) {
  auto world = NullWorld();
  CommDriver comm;
  EXPECT_THAT(comm.Create(world.get(), {.ranks = {0, 5}}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank 5"));
}

}  // namespace
}  // namespace commsched

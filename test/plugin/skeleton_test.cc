// The skeletons, in use.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "capi/plugin_policy.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/support/comm_driver.h"
#include "test/support/graph_builder.h"
#include "test/support/launches.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr char kSkeletons[] = COMMSCHED_TEST_PLUGINS "/skeletons";

absl::Status LoadSkeleton(const std::string& kind) {
  return PluginRegistry::Process().Load(
      absl::StrCat(kSkeletons, "/commsched_skeleton_", kind, ".so"));
}

std::shared_ptr<World> SkeletonWorld(int size) {
  EXPECT_OK(LoadSkeleton("backend"));
  WorldSpec spec;
  spec.size = size;
  spec.backend = "skeleton";
  return World::Create(spec).value();
}

TEST(SkeletonBackendTest, CopiesWithinARank) {
  auto world = SkeletonWorld(2);
  CommDriver comm;
  ASSERT_OK(comm.Create(world.get(), {.ranks = {1}}, 1));
  const double in[2] = {1, 2};
  double out[2] = {0, 0};
  const commsched_member_t member{in, out, 2, nullptr, 0, 0, 0, 0};
  for (const commsched_collective_t kind :
       {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
        COMMSCHED_ALL_TO_ALL, COMMSCHED_BROADCAST, COMMSCHED_REDUCE}) {
    out[0] = out[1] = 0;
    const commsched_launch_t launch =
        LaunchOf(kind, COMMSCHED_F64, COMMSCHED_SUM, 0, 1, 1, &member);
    EXPECT_OK(comm.LaunchAndWait(launch));
    EXPECT_EQ(out[0], 1);
    EXPECT_EQ(out[1], 2);
  }
  comm.Abort(COMMSCHED_UNAVAILABLE, "first");
  EXPECT_THAT(comm.Launch({}),
              StatusIs(absl::StatusCode::kUnavailable, "first"));
}

TEST(SkeletonBackendTest, RefusesWhatItCannotDo) {
  ASSERT_OK(LoadSkeleton("backend"));
  WorldSpec spec;
  spec.size = 1;
  spec.backend = "skeleton";
  spec.backend_config = "fast";
  EXPECT_THAT(World::Create(spec).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "'fast'"));
}

// Two neighbours of `count` f32 each that could merge.
absl::StatusOr<std::shared_ptr<const Plan>> PlanOfTwo(uint64_t count) {
  test::GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId a = builder.Buffer("a", count);
  const BufferId b = builder.Buffer("b", count);
  builder.Compute("produce", {test::Write(a), test::Write(b)});
  builder.AllReduce("sum.a", dp, a);
  builder.AllReduce("sum.b", dp, b);
  PlanOptions options;
  options.coalesce_bytes = 1 << 30;
  options.policy = std::make_shared<PluginPolicy>(
      PluginRegistry::Process().Policy("skeleton").value());
  return BuildPlan(builder.graph(), options, CostProfile());
}

TEST(SkeletonPolicyTest, KeepsLargeCollectivesApartAndLeavesTheRestToUs) {
  ASSERT_OK(LoadSkeleton("policy"));
  ASSERT_OK_AND_ASSIGN(const auto small, PlanOfTwo(1000));
  EXPECT_EQ(small->launches.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto large, PlanOfTwo(1 << 20));
  EXPECT_EQ(large->launches.size(), 2u);
}

}  // namespace
}  // namespace commsched

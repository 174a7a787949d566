// Groups whose numbers differ between the roles that share them.
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/support/graph_builder.h"
#include "test/support/rank_group.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Read;
using test::Write;

// A sum over both ranks; the second role has a group of its own before theirs.
Graph RoleGraph(int role) {
  GraphBuilder builder;
  if (role == 1) builder.Group("own", 1);
  const GroupId all = builder.Group("all", 2);
  const BufferId x = builder.Buffer("x", 4, Ownership::kBound);
  builder.Compute(role == 0 ? "make.0" : "make.1", {Write(x)});
  builder.Collective(
      "sum", test::Spec(CollectiveKind::kAllReduce, all, Read(x), Write(x)));
  return builder.graph();
}

TEST(RoleGroupsTest, ASharedGroupMayHaveAnotherNumberInEachRole) {
  const std::vector<Graph> graphs = {RoleGraph(0), RoleGraph(1)};
  const std::vector<RoleSpec> roles = {
      {.graph = &graphs[0], .role_of_member = {{0, 1}}, .profile = {}},
      {.graph = &graphs[1], .role_of_member = {{1}, {0, 1}}, .profile = {}}};
  const auto plans = BuildPlans(roles, PlanOptions{});
  ASSERT_OK(plans.status());
  WorldSpec world_spec;
  world_spec.size = 2;
  const std::shared_ptr<World> world = World::Create(world_spec).value();
  std::vector<std::vector<float>> x(2, std::vector<float>(4));
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    SessionSpec spec;
    spec.world = world;
    spec.world_rank = rank;
    spec.plan = (*plans)[static_cast<size_t>(rank)];
    spec.launch_timeout_ns = int64_t{2} * 1000 * 1000 * 1000;
    if (rank == 1) spec.groups.push_back({"own", {1}, 0});
    spec.groups.push_back({"all", {0, 1}, rank});
    spec.bindings.push_back({BufferId(0), x[rank].data(), 4 * sizeof(float)});
    ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
    auto one = [](void* values, OpId, Stream*) {
      static_cast<std::vector<float>*>(values)->assign(4, 1);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(session->Run(one, &x[rank], 3));
    return session->Drain();
  });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
  EXPECT_EQ(x[0][0], 2);
  EXPECT_EQ(x[1][0], 2);
}

TEST(RoleGroupsTest, TwoGroupsMayHoldTheSameRanksOnTheSameAxis) {
  GraphBuilder builder;
  const GroupId first = builder.Group("dp", 2);
  const GroupId second = builder.Group("dp.second", 2);
  const BufferId x = builder.Buffer("x", 64, Ownership::kBound);
  const BufferId y = builder.Buffer("y", 32, Ownership::kBound);
  builder.Compute("make", {Write(x), Write(y)});
  builder.AllReduce("one", first, x);
  builder.AllReduce("two", second, y);
  WorldSpec world;
  world.size = 2;
  test::SessionRig rig(world, builder.graph(), {});
  for (const absl::Status& status : rig.RunRanks([&](int rank) {
         SessionSpec spec = rig.Spec(rank);
         spec.groups[1].axis = spec.groups[0].axis;
         return Session::Create(spec).status();
       })) {
    EXPECT_OK(status);
  }
}

}  // namespace
}  // namespace commsched

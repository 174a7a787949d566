// The configuration of backend "nccl".
#include <cstdint>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "comm/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/backend_model.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int kRanks = 2;

absl::StatusOr<std::shared_ptr<World>> MakeWorld(const std::string& config) {
  WorldSpec spec;
  spec.size = kRanks;
  spec.table = test::NcclTable();
  spec.backend_config = config;
  for (int r = 0; r < kRanks; ++r) {
    spec.devices.push_back(test::FakeDevice(r));
  }
  return World::Create(spec);
}

// A session with a barrier, of a plan with so many lanes.
std::vector<absl::Status> RunWith(const std::string& config,
                                  uint32_t num_lanes) {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", kRanks).value();
  Op barrier;
  barrier.name = "barrier";
  barrier.kind = OpKind::kCollective;
  barrier.collective.kind = CollectiveKind::kBarrier;
  barrier.collective.group = group;
  (void)graph.AddOp(barrier).value();
  PlanOptions options;
  options.num_comm_lanes = num_lanes;
  options.backend = ModelOf(*test::NcclTable());
  const auto plan = BuildPlan(graph, options, CostProfile{}).value();
  const auto world = MakeWorld(config).value();
  return RunRanks(kRanks, [&](int rank) -> absl::Status {
    SessionSpec spec;
    spec.world = world;
    spec.world_rank = rank;
    spec.plan = plan;
    spec.groups = {{.axis = "dp", .ranks = {0, 1}, .rank = rank}};
    ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
    RETURN_IF_ERROR(session->StepBegin());
    RETURN_IF_ERROR(session->StepEnd());
    return session->Drain();
  });
}

FakeNcclConfig LastConfig() { return fake_nccl_last_config(); }

TEST(NcclConfigTest, WhatIsNotAskedForIsLeftToNccl) {
  test::ExpectAllOk(RunWith("", 1));
  EXPECT_EQ(LastConfig().blocking, 1);
  EXPECT_EQ(LastConfig().max_ctas, INT32_MIN);
  EXPECT_EQ(LastConfig().min_ctas, INT32_MIN);
  EXPECT_EQ(LastConfig().cga, INT32_MIN);
}

TEST(NcclConfigTest, WhatIsAskedForIsHandedOn) {
  test::ExpectAllOk(RunWith("max_ctas=16,min_ctas=2,cga=4", 1));
  EXPECT_EQ(LastConfig().max_ctas, 16);
  EXPECT_EQ(LastConfig().min_ctas, 2);
  EXPECT_EQ(LastConfig().cga, 4);
}

TEST(NcclConfigTest, LanesShareTheBudget) {
  test::ExpectAllOk(RunWith("max_ctas=16", 4));
  EXPECT_EQ(LastConfig().max_ctas, 4);
  test::ExpectAllOk(RunWith("", 4));
  EXPECT_EQ(LastConfig().max_ctas, 8);
}

TEST(NcclConfigTest, MoreLanesThanTheBudgetHasRoomForAreRefused) {
  for (const absl::Status& status : RunWith("max_ctas=16,min_ctas=8", 4)) {
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(
                    "4 communication lanes with at least 8 CTAs each do not "
                    "fit into 16 (max_ctas"));
  }
}

TEST(NcclConfigTest, NonsenseIsRefusedByName) {
  const std::pair<const char*, const char*> refused[] = {
      {"max_ctas=33", "max_ctas is '33'; it must be a number in 1..32"},
      {"max_ctas=0", "max_ctas is '0'; it must be a number in 1..32"},
      {"min_ctas=", "min_ctas is ''; it must be a number in 1..32"},
      {"cga=9", "cga is '9'; it must be a number in 0..8"},
      {"cga=2x", "cga is '2x'; it must be"},
      {"cga", "cga is ''; it must be"},
      {"lanes=2",
       "unknown key 'lanes'; there are max_ctas, min_ctas, cga and register"},
      {"cga=1,max_ctas=4,cga=1",
       "configuration: cga is given twice; give it once"},
      {"max_ctas=0x10", "max_ctas is '0x10'; it must be a number in 1..32"},
      {"max_ctas=4,min_ctas=5", "min_ctas is 5, above max_ctas, which is 4"},
  };
  for (const auto& [config, why] : refused) {
    EXPECT_THAT(MakeWorld(config).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, why))
        << config;
  }
}

}  // namespace
}  // namespace commsched

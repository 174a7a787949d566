// The configuration of backend "nccl".
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

// A session of a plan with so many lanes, each with a barrier on an axis of its
// own.
std::vector<absl::Status> RunWith(const std::string& config,
                                  uint32_t num_lanes) {
  Graph graph;
  for (uint32_t i = 0; i < num_lanes; ++i) {
    Op barrier;
    barrier.name = absl::StrCat("barrier", i);
    barrier.kind = OpKind::kCollective;
    barrier.collective.kind = CollectiveKind::kBarrier;
    barrier.collective.group =
        graph.AddGroup(absl::StrCat("axis", i), kRanks).value();
    (void)graph.AddOp(barrier).value();
  }
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
    for (const Group& group : plan->graph->groups()) {
      spec.groups.push_back({group.name, {0, 1}, rank});
    }
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
  EXPECT_EQ(LastConfig().min_ctas, INT32_MIN);
  EXPECT_EQ(LastConfig().cga, INT32_MIN);
}

TEST(NcclConfigTest, WhatIsAskedForIsHandedOn) {
  test::ExpectAllOk(RunWith("max_ctas=16,lanes=1,min_ctas=2,cga=4", 1));
  EXPECT_EQ(LastConfig().max_ctas, 16);
  EXPECT_EQ(LastConfig().min_ctas, 2);
  EXPECT_EQ(LastConfig().cga, 4);
}

// Four, unless the job says how many, or a plan has more.
TEST(NcclConfigTest, LanesOfTheDeviceShareTheBudget) {
  test::ExpectAllOk(RunWith("max_ctas=16", 1));
  EXPECT_EQ(LastConfig().max_ctas, 4);
  test::ExpectAllOk(RunWith("max_ctas=16,lanes=8", 1));
  EXPECT_EQ(LastConfig().max_ctas, 2);
  test::ExpectAllOk(RunWith("max_ctas=16", 5));
  EXPECT_EQ(LastConfig().max_ctas, 3);
}

TEST(NcclConfigTest, ABudgetIsACtaPerMultiprocessor) {
  for (const auto& [multiprocessors, share] :
       {std::pair(132, 33), std::pair(20, 5), std::pair(3, 1)}) {
    const int before = fake_gpu_multiprocessors(multiprocessors);
    test::ExpectAllOk(RunWith("", 1));
    fake_gpu_multiprocessors(before);
    EXPECT_EQ(LastConfig().max_ctas, share);
  }
}

// The rest is room for other lanes.
TEST(NcclConfigTest, ACommunicatorHasNoMoreThanNcclsLimit) {
  test::ExpectAllOk(RunWith("lanes=1", 1));
  EXPECT_EQ(LastConfig().max_ctas, 64);
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
      {"max_ctas=1025", "max_ctas is '1025'; it must be a number in 1..1024"},
      {"max_ctas=0", "max_ctas is '0'; it must be a number in 1..1024"},
      {"min_ctas=", "min_ctas is ''; it must be a number in 1..64"},
      {"lanes=65", "lanes is '65'; it must be a number in 1..64"},
      {"cga=9", "cga is '9'; it must be a number in 0..8"},
      {"cga=2x", "cga is '2x'; it must be"},
      {"cga", "cga is ''; it must be"},
      {"ctas=2",
       "unknown key 'ctas'; there are max_ctas, lanes, min_ctas, cga and "
       "register"},
      {"cga=1,max_ctas=4,cga=1",
       "configuration: cga is given twice; give it once"},
      {"max_ctas=0x10", "max_ctas is '0x10'; it must be a number in 1..1024"},
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

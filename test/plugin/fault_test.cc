// The plugin "fault": a backend like any other, on which things go wrong.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "gtest/gtest.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int kRanks = 3;

absl::StatusOr<std::shared_ptr<World>> FaultWorld(const std::string& config) {
  EXPECT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_PLUGINS
                                           "/commsched_fault.so"));
  WorldSpec spec;
  spec.size = kRanks;
  spec.backend = "fault";
  spec.backend_config = config;
  return World::Create(spec);
}

// Every rank reduces its number, several times; what each got.
std::vector<absl::Status> Reduce(const std::string& config, int times) {
  auto world = FaultWorld(config);
  EXPECT_OK(world);
  return RunRanks(kRanks, [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status created = comm.Create(world->get(), {}, rank);
    if (!created.ok()) return created;
    for (int i = 0; i < times; ++i) {
      const int64_t mine = rank + i;
      int64_t sum = 0;
      const commsched_member_t member{&mine, &sum, 1, nullptr, 0, 0, 0, 0};
      const commsched_launch_t launch = LaunchOf(
          COMMSCHED_ALL_REDUCE, COMMSCHED_I64, COMMSCHED_SUM, 0, 0, 1, &member);
      const absl::Status done = comm.LaunchAndWait(launch);
      if (!done.ok()) return done;
      if (sum != kRanks * i + 3) return absl::InternalError("wrong sum");
    }
    return absl::OkStatus();
  });
}

TEST(FaultPluginTest, WhatIsDelayedOrLateGivesTheSame) {
  for (const absl::Status& status :
       Reduce("fault=delay,us=200,per_million=200000;"
              "fault=late,us=200,per_million=200000,rank=1;seed=7",
              100)) {
    EXPECT_OK(status);
  }
}

TEST(FaultPluginTest, AFailedLaunchFailsAllMembersByName) {
  for (const absl::Status& status :
       Reduce("inner=inproc;fault=fail_launch,rank=2,launch=5", 20)) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 "injected into launch #5 on axis 'dp' of "
                                 "rank 2"));
  }
}

TEST(FaultPluginTest, AFailedPollDoesSoOnceTheLaunchIsComplete) {
  const auto statuses = Reduce("fault=fail_poll,rank=0,launch=0", 2);
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDataLoss, "launch #0"));
}

TEST(FaultPluginTest, WhatHangsIsNeverDone) {
  auto world = FaultWorld("fault=hang,rank=1;inner_config=");
  ASSERT_OK(world);
  const auto statuses = RunRanks(kRanks, [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status created = comm.Create(world->get(), {}, rank);
    if (!created.ok()) return created;
    commsched_launch_t barrier{};
    barrier.kind = COMMSCHED_BARRIER;
    if (rank != 1) return comm.LaunchAndWait(barrier);
    absl::Status launched = comm.Launch(barrier);
    for (int i = 0; launched.ok() && i < 1000; ++i) {
      const auto polled = comm.Poll();
      if (!polled.ok()) return polled.status();
      if (polled->done != 0) return absl::InternalError("done");
    }
    comm.Abort(COMMSCHED_CANCELLED, "enough");
    return launched;
  });
  EXPECT_OK(statuses[1]);
}

TEST(FaultPluginTest, AMistakeInTheConfigurationIsNamed) {
  const auto refused = [](const std::string& config, const char* why) {
    EXPECT_THAT(FaultWorld(config),
                StatusIs(absl::StatusCode::kInvalidArgument, why))
        << config;
  };
  refused("speed=1", "'speed' is none of inner, seed, fault, inner_config");
  refused("seed=x", "seed is 'x', not an integer in 0..");
  refused("fault=slow", "fault 'slow' begins with none of delay");
  refused("fault=delay,us=-1", "us is '-1'");
  refused("fault=delay,per_million=1000001", "not an integer in 0..1000000");
  refused("fault=hang,who=1", "'who' is none of rank, axis");
  refused("seed=0x10", "seed is '0x10', not an integer in 0..");
  refused("seed=1;fault=hang;seed=1", "configuration: seed is given twice");
  refused("fault=hang,rank=0,rank=1", "configuration: rank is given twice");
  EXPECT_THAT(FaultWorld("inner=nobody"),
              StatusIs(absl::StatusCode::kNotFound, "'nobody'"));
  EXPECT_THAT(FaultWorld("inner=fault"),
              StatusIs(absl::StatusCode::kNotFound, "'fault'"));
  EXPECT_THAT(FaultWorld("inner=null"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "'null'"));
  EXPECT_THAT(FaultWorld("inner_config=speed=1"),
              StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace commsched

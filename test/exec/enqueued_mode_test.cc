#include "exec/enqueued_mode.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Buckets;
using test::IssuerRig;
using test::IssuerRigSpec;
using test::With;
using ::testing::ElementsAre;

constexpr int64_t kSecondNs = 1'000'000'000;

IssuerRigSpec Enqueued(int num_buckets, PlanOptions options = {}) {
  return {.graph = Buckets(num_buckets),
          .options = options,
          .mode = IssuerRigSpec::Mode::kEnqueued};
}

// Two launches, of one lane each.
void UseTwoLanes(IssuerRig* rig) {
  rig->program().launches[0].lane = 0;
  rig->program().launches[1].lane = 1;
}

// Notes launches among what streams are told.
void LogLaunches(IssuerRig* rig) {
  rig->issuer();
  rig->backend().on_launch = [rig](const auto&) {
    rig->device().log.push_back("launch");
  };
}

TEST(EnqueuedModeTest, ALaunchIsWaitsThenLaunchThenRecord) {
  IssuerRig rig(Enqueued(1));
  LogLaunches(&rig);
  rig.issuer().MakeDue(1, 0);
  EXPECT_THAT(rig.device().log, ElementsAre("lane0 waits for make_a@1",
                                            "launch", "lane0 records sum_a@1"));
}

TEST(EnqueuedModeTest, TheNextStepWaitsForAndRecordsTheNextGeneration) {
  IssuerRig rig(Enqueued(1));
  rig.issuer().MakeDue(1, 0);
  rig.device().log.clear();
  LogLaunches(&rig);
  rig.issuer().MakeDue(2, 0);
  EXPECT_THAT(rig.device().log, ElementsAre("lane0 waits for make_a@2",
                                            "launch", "lane0 records sum_a@2"));
}

TEST(EnqueuedModeTest, PackedMembersAreCopiedOnTheStreamAroundTheLaunch) {
  IssuerRig rig(Enqueued(2, With(&PlanOptions::coalesce_bytes, 1000)));
  ASSERT_EQ(rig.program().launches.size(), 1u);
  LogLaunches(&rig);
  rig.issuer().MakeDue(1, 0);
  const std::vector<std::string>& log = rig.device().log;
  ASSERT_GE(log.size(), 6u);
  EXPECT_THAT(std::vector<std::string>(log.end() - 6, log.end()),
              ElementsAre("lane0 copies 16 bytes", "lane0 copies 16 bytes",
                          "launch", "lane0 copies 16 bytes",
                          "lane0 copies 16 bytes", "lane0 records sum_a@1"));
}

TEST(EnqueuedModeTest, EachLaneHasItsStream) {
  IssuerRig rig(Enqueued(2, With(&PlanOptions::num_comm_lanes, 2)));
  UseTwoLanes(&rig);
  rig.issuer().MakeDue(2, 0);
  EXPECT_THAT(rig.device().log,
              ElementsAre("lane0 waits for make_a@1", "lane0 records sum_a@1",
                          "lane1 waits for make_b@1", "lane1 records sum_b@1"));
}

// Whoever sees it due has its stream wait for the event, which does nothing if
// it was not recorded.
TEST(EnqueuedModeTest, ALaunchIsNotDueForOthersBeforeItIsRecorded) {
  IssuerRig rig(Enqueued(2));
  std::vector<uint64_t> due;
  rig.backend().on_launch = [&](const auto&) {
    due.push_back(rig.issuer().due());
  };
  rig.issuer().MakeDue(1, 0);
  rig.issuer().MakeDue(2, 0);
  EXPECT_THAT(due, ElementsAre(0u, 1u));
  EXPECT_EQ(rig.issuer().due(), 2u);
}

TEST(EnqueuedModeTest, ADeviceThatFailsInAWaitGetsNoLaunch) {
  IssuerRig rig(Enqueued(1));
  rig.issuer();
  rig.device().failure = absl::InternalError("device is lost");
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.Launched(), "");
  EXPECT_EQ(rig.issuer().due(), 0u);
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kInternal,
                       "launch #0 all_reduce 'sum_a' on axis dp of step 0: "
                       "device is lost"));
}

TEST(EnqueuedModeTest, ALaunchWhoseRecordFailedIsNotDue) {
  IssuerRig rig(Enqueued(1));
  rig.issuer();
  rig.backend().on_launch = [&](const auto&) {
    rig.device().failure = absl::InternalError("device is lost");
  };
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.issuer().due(), 0u);
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kInternal, "'sum_a'"));
}

TEST(EnqueuedModeTest, ALaunchThatFailedIsNotRecorded) {
  IssuerRig rig(Enqueued(2));
  rig.issuer();
  rig.backend().launch_error = "cable";
  rig.issuer().MakeDue(2, 0);
  EXPECT_THAT(rig.device().log, ElementsAre("lane0 waits for make_a@1"));
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kUnavailable, "'sum_a'"));
}

// ---- The turn ----

// Nobody else's waits and copies come between those of a launch.
TEST(EnqueuedModeTest, ALaunchHasItsLaneToItself) {
  IssuerRig rig(Enqueued(2, With(&PlanOptions::num_comm_lanes, 2)));
  UseTwoLanes(&rig);
  rig.issuer();
  std::vector<bool> is_free;  // Lanes 0 and 1, in each launch.
  rig.backend().on_launch = [&](const auto&) {
    for (uint32_t lane = 0; lane < 2; ++lane) {
      is_free.push_back(rig.turn(lane).TryTake());
      if (is_free.back()) rig.turn(lane).Give();
    }
  };
  rig.issuer().MakeDue(2, 0);
  EXPECT_THAT(is_free, ElementsAre(false, true, true, false));
  EXPECT_TRUE(rig.turn(0).TryTake());
  EXPECT_TRUE(rig.turn(1).TryTake());
}

TEST(EnqueuedModeTest, ALaunchWaitsForItsTurn) {
  IssuerRig rig(Enqueued(1));
  rig.issuer();
  Turn& turn = rig.turn(0);
  ASSERT_TRUE(turn.TryTake());
  std::thread issues([&] { rig.issuer().MakeDue(1, 0); });
  ASSERT_TRUE(test::Await([&] { return turn.IsWanted(); }));
  EXPECT_THAT(rig.device().log, ElementsAre());
  turn.Give();
  issues.join();
  EXPECT_THAT(rig.device().log,
              ElementsAre("lane0 waits for make_a@1", "lane0 records sum_a@1"));
}

TEST(EnqueuedModeTest, AFailureIsToldWithoutTheTurn) {
  for (const bool of_device : {false, true}) {
    IssuerRig rig(Enqueued(1));
    rig.issuer();
    bool is_free = false;
    rig.on_abort = [&] { is_free = rig.turn(0).TryTake(); };
    if (of_device) {
      rig.device().failure = absl::InternalError("device is lost");
    } else {
      rig.backend().launch_error = "cable";
    }
    rig.issuer().MakeDue(1, 0);
    EXPECT_FALSE(rig.failure().status().ok());
    EXPECT_TRUE(is_free);
  }
}

// ---- The monitor ----

TEST(EnqueuedModeTest, TheMonitorRetiresInKeyOrder) {
  IssuerRig rig(Enqueued(2, With(&PlanOptions::num_comm_lanes, 2)));
  UseTwoLanes(&rig);
  rig.issuer().MakeDue(2, 0);
  EXPECT_FALSE(rig.issuer().Pump());
  rig.EndOnDevice("sum_b");
  EXPECT_FALSE(rig.issuer().Pump());
  EXPECT_FALSE(rig.HasCompleted("sum_b"));
  // Whoever asks needs not wait for the monitor.
  EXPECT_TRUE(rig.issuer().HasCompleted(rig.Launch("sum_b"), 1));
  EXPECT_FALSE(rig.issuer().HasCompleted(rig.Launch("sum_a"), 1));
  rig.EndOnDevice("sum_a");
  EXPECT_TRUE(rig.issuer().Pump());
  EXPECT_TRUE(rig.HasCompleted("sum_a"));
  EXPECT_TRUE(rig.HasCompleted("sum_b"));
  rig.issuer().AwaitRetired(1);
}

// It needs to look at no other, whose lines are its issuer's.
TEST(EnqueuedModeTest, TheLastLaunchOfALaneEndsThoseBefore) {
  IssuerRig rig(Enqueued(2));
  rig.issuer().MakeDue(2, 0);
  rig.EndOnDevice("sum_b");
  EXPECT_TRUE(rig.issuer().Pump());
  EXPECT_TRUE(rig.HasCompleted("sum_a"));
  EXPECT_TRUE(rig.HasCompleted("sum_b"));
  rig.issuer().AwaitRetired(1);
}

TEST(EnqueuedModeTest, TheMonitorEntersTheDeviceOnce) {
  IssuerRig rig(Enqueued(1));
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.device().num_monitors, 0);
  rig.PumpAll();
  rig.PumpAll();
  EXPECT_EQ(rig.device().num_monitors, 1);
}

// What a launch still waits for is the caller's work, which may take its time.
TEST(EnqueuedModeTest, ALaunchHasItsTimeFromWhenItsWaitsAreMet) {
  IssuerRig rig(Enqueued(1));
  rig.issuer().MakeDue(1, 0);
  rig.PumpAll();
  rig.clock().AdvanceNs(5 * kSecondNs);
  rig.PumpAll();
  EXPECT_OK(rig.failure().status());
  rig.Make("make_a");
  rig.PumpAll();
  rig.clock().AdvanceNs(kSecondNs - 1);
  rig.PumpAll();
  EXPECT_OK(rig.failure().status());
  rig.clock().AdvanceNs(1);
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'sum_a'"));
}

TEST(EnqueuedModeTest, TheDeadlineNamesTheOldestLaunch) {
  IssuerRig rig(Enqueued(2));
  rig.issuer().MakeDue(2, 0);
  rig.Make("make_a");
  rig.Make("make_b");
  rig.EndOnDevice("sum_a");
  rig.PumpAll();
  rig.clock().AdvanceNs(kSecondNs);
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'sum_b'"));
}

TEST(EnqueuedModeTest, TheMonitorSeesThatTheDeviceHasFailed) {
  IssuerRig rig(Enqueued(1));
  rig.issuer().MakeDue(1, 0);
  rig.device().failure = absl::InternalError("device is lost");
  EXPECT_FALSE(rig.issuer().Pump());
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kInternal, "device is lost"));
}

// Its kernel ends, too; what it leaves is no result.
TEST(EnqueuedModeTest, ALaunchThatEndsByAnAbortDoesNotComplete) {
  IssuerRig rig(Enqueued(1));
  rig.issuer().MakeDue(1, 0);
  rig.backend().status_error = "rank 1 has left";
  rig.EndOnDevice("sum_a");
  EXPECT_FALSE(rig.issuer().Pump());
  EXPECT_FALSE(rig.HasCompleted("sum_a"));
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kUnavailable, "rank 1 has left"));
  rig.issuer().AwaitRetired(1);  // Nobody waits for ever.
}

TEST(EnqueuedModeTest, TheMonitorLooksOftenOnlyWhileSomethingIsUnderWay) {
  IssuerRig rig(Enqueued(1));
  rig.clock().AdvanceNs(kSecondNs);
  rig.issuer().MakeDue(1, 0);
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), kSecondNs + 500'000);
  rig.EndOnDevice("sum_a");
  rig.PumpAll();
  rig.clock().AdvanceNs(50'000'000);
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), kSecondNs + 50'500'000);
  rig.clock().AdvanceNs(1);
  rig.PumpAll();
  // Who issues just then may not see that it has to wake the monitor.
  EXPECT_EQ(rig.issuer().NextWakeNs(), kSecondNs + 50'500'001);
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), kNoDeadlineNs);
}

TEST(EnqueuedModeTest, TheMonitorLooksMoreOftenIfATraceWantsToKnow) {
  Recorder recorder(Recorder::kMinCapacity);
  IssuerRigSpec spec = Enqueued(1);
  spec.recorder = &recorder;
  IssuerRig rig(spec);
  rig.issuer().MakeDue(1, 0);
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), 100'000);
}

}  // namespace
}  // namespace commsched

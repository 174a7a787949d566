#include "exec/polled_mode.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Buckets;
using test::IssuerRig;
using test::With;

constexpr int64_t kLaunchTimeoutNs = 1'000'000'000;

TEST(PolledModeTest, NothingIsIssuedBeforeItIsDue) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "");
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.Launched(), "");  // Only Pump() issues.
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0");
}

TEST(PolledModeTest, LaunchesGoInKeyOrderWhateverIsReadyFirst) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.issuer().MakeDue(2, 0);
  rig.Make("make_b");
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "");
  rig.Make("make_a");
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_b@0");
}

TEST(PolledModeTest, TheNextStepGoesOnWithTheFirstLaunch) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.issuer().MakeDue(4, 0);
  for (uint64_t step : {0, 1}) {
    rig.Make("make_a", step);
    rig.Make("make_b", step);
  }
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_b@0 sum_a@1 sum_b@1");
}

TEST(PolledModeTest, AWaitOfTheNextStepIsForTheNextGeneration) {
  IssuerRig rig({.graph = Buckets(1)});
  rig.issuer().MakeDue(2, 0);
  rig.Make("make_a", 0);
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0");
  rig.Make("make_a", 1);
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_a@1");
}

// The plan's waits keep the cap, too: here they are taken out.
TEST(PolledModeTest, TheWindowHoldsTheNextLaunchBack) {
  IssuerRig rig({.graph = Buckets(3),
                 .options = With(&PlanOptions::max_bytes_in_flight, 32)});
  for (LaunchProgram& launch : rig.program().launches) launch.waits.count = 0;
  rig.issuer().MakeDue(3, 0);
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_b@0");
  rig.backend().Finish(0);
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_b@0 sum_c@0");
  EXPECT_EQ(rig.issuer().window().peak_bytes(), 32u);
}

TEST(PolledModeTest, ThePlansWindowWaitsHoldTheNextLaunchBack) {
  IssuerRig rig({.graph = Buckets(2),
                 .options = With(&PlanOptions::max_launches_in_flight, 1)});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0");
  rig.backend().Finish(0);
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "sum_a@0 sum_b@0");
}

// A request is free again once its launch has retired.
TEST(PolledModeTest, NoMoreLaunchesAreInFlightThanThereAreRequests) {
  IssuerRig rig({.graph = Buckets(1)});
  for (LaunchProgram& launch : rig.program().launches) launch.waits.count = 0;
  rig.issuer().MakeDue(PolledMode::kMaxInFlight + 1, 0);
  rig.PumpAll();
  ASSERT_EQ(rig.backend().launched().size(), PolledMode::kMaxInFlight);
  EXPECT_EQ(rig.backend().launched().back().request,
            PolledMode::kMaxInFlight - 1);
  rig.backend().Finish(0);
  rig.PumpAll();
  ASSERT_EQ(rig.backend().launched().size(), PolledMode::kMaxInFlight + 1);
  EXPECT_EQ(rig.backend().launched().back().request, 0u);
}

TEST(PolledModeTest, RequestsForIsTheCapOnLaunchesIfThatIsLower) {
  Plan plan;
  EXPECT_EQ(PolledMode::RequestsFor(plan), 64u);
  plan.options.max_launches_in_flight = 3;
  EXPECT_EQ(PolledMode::RequestsFor(plan), 3u);
  plan.options.max_launches_in_flight = 65;
  EXPECT_EQ(PolledMode::RequestsFor(plan), 64u);
}

TEST(PolledModeTest, ALaneRetiresInIssueOrder) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  rig.backend().Finish(1);
  rig.PumpAll();
  EXPECT_FALSE(rig.HasCompleted("sum_b"));
  rig.backend().Finish(0);
  rig.PumpAll();
  EXPECT_TRUE(rig.HasCompleted("sum_a"));
  EXPECT_TRUE(rig.HasCompleted("sum_b"));
}

TEST(PolledModeTest, ALaneDoesNotWaitForAnother) {
  IssuerRig rig(
      {.graph = Buckets(2), .options = With(&PlanOptions::num_comm_lanes, 2)});
  rig.program().launches[1].lane = 1 - rig.program().launches[0].lane;
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  rig.backend().Finish(1);
  rig.PumpAll();
  EXPECT_FALSE(rig.HasCompleted("sum_a"));
  EXPECT_TRUE(rig.HasCompleted("sum_b"));
}

TEST(PolledModeTest, WhatIsDoneIsNotPolledAgain) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  rig.backend().Finish(1);
  rig.PumpAll();  // Held back by the first.
  const uint64_t polls = rig.backend().num_polls();
  rig.issuer().Pump();
  EXPECT_EQ(rig.backend().num_polls(), polls + 1);
}

TEST(PolledModeTest, ARetiredLaunchHasItsEventAndItsCpuTime) {
  IssuerRig rig({.graph = Buckets(1)});
  rig.Make("make_a");
  rig.issuer().MakeDue(1, 0);
  rig.PumpAll();
  Event* event = rig.program().launches[0].event;
  ASSERT_NE(event, nullptr);
  EXPECT_FALSE(event->IsComplete(1));
  rig.backend().launched()[0].cpu_ns = 700;
  rig.backend().Finish(0);
  rig.PumpAll();
  EXPECT_TRUE(event->IsComplete(1));
  EXPECT_FALSE(event->IsComplete(2));
  EXPECT_EQ(rig.issuer().CpuNs(0), 700);
}

TEST(PolledModeTest, TheDeadlineNamesTheOldestLaunchOfTheLane) {
  IssuerRig rig({.graph = Buckets(2), .launch_timeout_ns = kLaunchTimeoutNs});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), kLaunchTimeoutNs);
  rig.clock().AdvanceNs(kLaunchTimeoutNs - 1);
  rig.PumpAll();
  EXPECT_OK(rig.failure().status());
  rig.clock().AdvanceNs(1);
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "launch #0 all_reduce 'sum_a' on axis dp of step 0"));
  EXPECT_EQ(rig.issuer().NextWakeNs(), kNoDeadlineNs);
}

TEST(PolledModeTest, ALaunchHasItsTimeFromTheEndOfTheOneBefore) {
  IssuerRig rig({.graph = Buckets(2), .launch_timeout_ns = kLaunchTimeoutNs});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  rig.clock().AdvanceNs(kLaunchTimeoutNs - 1);
  rig.backend().Finish(0);
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), 2 * kLaunchTimeoutNs - 1);
  rig.clock().AdvanceNs(kLaunchTimeoutNs);
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'sum_b'"));
}

// A sum of four ranks for each of them.
Graph SumsOfFour(const std::vector<std::string>& groups = {"dp"}) {
  test::GraphBuilder builder;
  for (const std::string& name : groups) {
    const GroupId group = builder.Group(name, 4);
    const BufferId buffer = builder.Buffer("of_" + name, 4);
    builder.Compute("make_" + name, {test::Write(buffer)});
    builder.AllReduce("sum_" + name, group, buffer);
  }
  return builder.graph();
}

// One launch that has taken too long, on a rank of four.
class LateLaunchTest : public testing::Test {
 protected:
  LateLaunchTest()
      : rig_({.graph = SumsOfFour(),
              .launch_timeout_ns = kLaunchTimeoutNs,
              .recorder = &recorder_}) {
    rig_.backend().KnowsWhoIsLate();
    rig_.Make("make_dp");
    rig_.issuer().MakeDue(1, 0);
    rig_.PumpAll();
  }
  void Advance(int64_t ns) {
    rig_.clock().AdvanceNs(ns);
    rig_.PumpAll();
  }
  // Until ranks are asked, and from then to the deadline.
  void AdvanceToAsking() { Advance(kLaunchTimeoutNs / 2); }
  void AdvanceToDeadline() { Advance(kLaunchTimeoutNs / 2); }
  // Who is asked does not answer before the test says so.
  void AnswersTakeTime(const std::vector<int32_t>& ranks) {
    rig_.backend().on_asked = [this, ranks] { rig_.backend().silent = ranks; };
  }

  Recorder recorder_{1024};
  IssuerRig rig_;
};

TEST_F(LateLaunchTest, NobodyIsAskedEarlierThanHalfOfItsTime) {
  Advance(kLaunchTimeoutNs / 2 - 1);
  EXPECT_EQ(rig_.backend().num_asked(), 0u);
  EXPECT_EQ(rig_.issuer().NextWakeNs(), rig_.clock().NowNs() + 1);
  Advance(1);
  EXPECT_EQ(rig_.backend().num_asked(), 1u);
  EXPECT_EQ(rig_.issuer().NextWakeNs(),
            rig_.clock().NowNs() + kLaunchTimeoutNs / 2);
}

TEST_F(LateLaunchTest, WhoIsMissingIsNamedAtOnceIfNobodyIsAsked) {
  rig_.backend().missing = {1};
  AdvanceToAsking();
  EXPECT_OK(rig_.failure().status());
  AdvanceToDeadline();
  EXPECT_THAT(
      rig_.failure().status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               "rank 1 has not issued #0 all_reduce 'sum_dp' on axis dp of "
               "step 0; ranks 0, 2-3 have waited for 1.0 s, the limit is "
               "1.0 s"));
}

TEST_F(LateLaunchTest, WhoHasAnsweredIsAskedAgainAtTheDeadlineAndWaitedFor) {
  rig_.backend().missing = {1, 3};
  AdvanceToAsking();
  AnswersTakeTime({1, 3});
  AdvanceToDeadline();
  EXPECT_OK(rig_.failure().status());
  EXPECT_GT(rig_.issuer().NextWakeNs(), rig_.clock().NowNs());
  // Rank 1 has issued it meanwhile.
  rig_.backend().silent = {};
  rig_.backend().missing = {3};
  rig_.PumpAll();
  EXPECT_THAT(
      rig_.failure().status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               "rank 3 has not issued #0 all_reduce 'sum_dp' on axis dp of "
               "step 0; ranks 0-2 have waited for 1.0 s, the limit is 1.0 s"));
}

// Others may wait for this rank, which waits for that one.
TEST_F(LateLaunchTest, WhoHasNotAnsweredBeforeTheDeadlineIsNotWaitedFor) {
  AnswersTakeTime({1});
  AdvanceToAsking();
  rig_.backend().on_asked = nullptr;
  AdvanceToDeadline();
  EXPECT_THAT(
      rig_.failure().status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               "launch #0 all_reduce 'sum_dp' on axis dp of step 0 is not "
               "complete on rank 0 after 1.0 s; the limit is 1.0 s; rank 1 "
               "does not answer"));
}

// Though it is not waited for.
TEST_F(LateLaunchTest, WhoAnswersAtLastIsNamed) {
  AnswersTakeTime({1, 2});
  AdvanceToAsking();
  rig_.backend().silent = {1};
  rig_.backend().missing = {2};
  rig_.PumpAll();
  AnswersTakeTime({1, 2});
  AdvanceToDeadline();
  EXPECT_OK(rig_.failure().status());
  rig_.backend().silent = {};
  rig_.backend().missing = {1, 2};
  rig_.PumpAll();
  EXPECT_THAT(rig_.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "ranks 1-2 have not issued"));
}

TEST_F(LateLaunchTest, WhoAnsweredIsNamedThoughAnotherDoesNotAnswerAgain) {
  rig_.backend().missing = {1, 2};
  AdvanceToAsking();
  AnswersTakeTime({2});
  AdvanceToDeadline();
  EXPECT_OK(rig_.failure().status());
  Advance(kLaunchTimeoutNs / 2);
  EXPECT_THAT(rig_.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "rank 1 has not issued #0 all_reduce 'sum_dp' on axis "
                       "dp of step 0; ranks 0, 3 have waited for 1.5 s, the "
                       "limit is 1.0 s; rank 2 does not answer"));
}

TEST_F(LateLaunchTest, WhoDoesNotAnswerAgainIsWaitedForForSomeTime) {
  AdvanceToAsking();
  AnswersTakeTime({1});
  AdvanceToDeadline();
  EXPECT_OK(rig_.failure().status());
  const int64_t answers_by_ns = rig_.issuer().NextWakeNs();
  Advance(answers_by_ns - rig_.clock().NowNs());
  EXPECT_THAT(rig_.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "after 1.5 s; the limit is 1.0 s; rank 1 does not "
                       "answer"));
}

// As of a process that was stopped meanwhile.
TEST_F(LateLaunchTest, WhoLooksLateAsksAllTheSame) {
  AnswersTakeTime({1});
  Advance(3 * kLaunchTimeoutNs);
  EXPECT_OK(rig_.failure().status());
  rig_.backend().on_asked = nullptr;
  rig_.backend().silent = {};
  rig_.backend().missing = {1};
  rig_.PumpAll();
  EXPECT_THAT(
      rig_.failure().status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1 has not issued"));
}

TEST_F(LateLaunchTest, ALaunchThatEndsMeanwhileIsNotLate) {
  AdvanceToAsking();
  AnswersTakeTime({1});
  AdvanceToDeadline();
  rig_.backend().Finish(0);
  rig_.PumpAll();
  Advance(10 * kLaunchTimeoutNs);
  EXPECT_OK(rig_.failure().status());
}

TEST_F(LateLaunchTest, WhoIsAskedAnewIsNotSaidToBeMissing) {
  rig_.backend().missing = {1, 2};
  AnswersTakeTime({1});
  const std::vector<PendingLaunch> pending =
      rig_.issuer().PendingBy(SystemClock::Get().NowNs() + 20'000'000);
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].wait.missing, std::vector<int>{2});
  EXPECT_EQ(pending[0].wait.silent, std::vector<int>{1});
  EXPECT_EQ(rig_.backend().num_asked(), 1u);
}

// Whose launch is of the same group.
TEST(PolledModeTest, WhoIsAskedForAnotherLaneHasTimeToAnswer) {
  test::GraphBuilder builder;
  const GroupId group = builder.Group("dp", 4);
  for (const std::string name : {"a", "b"}) {
    const BufferId buffer = builder.Buffer(name, 4);
    builder.Compute("make_" + name, {test::Write(buffer)});
    builder.AllReduce("sum_" + name, group, buffer);
  }
  IssuerRig rig({.graph = builder.graph(),
                 .options = With(&PlanOptions::num_comm_lanes, 2),
                 .launch_timeout_ns = kLaunchTimeoutNs});
  rig.program().launches[1].lane = 1 - rig.program().launches[0].lane;
  rig.backend().KnowsWhoIsLate();
  rig.backend().missing = {1};
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.PumpAll();
  rig.clock().AdvanceNs(kLaunchTimeoutNs / 2);
  rig.PumpAll();
  rig.backend().on_asked = [&rig] { rig.backend().silent = {1}; };
  rig.clock().AdvanceNs(kLaunchTimeoutNs / 2);
  rig.PumpAll();
  EXPECT_OK(rig.failure().status());
  rig.backend().silent = {};
  rig.PumpAll();
  EXPECT_THAT(
      rig.failure().status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1 has not issued"));
}

// Launches of another lane end while answers are waited for.
TEST(PolledModeTest, EachLaneHasItsOwnTimeForAnswers) {
  IssuerRig rig({.graph = SumsOfFour({"dp", "tp"}),
                 .options = With(&PlanOptions::num_comm_lanes, 2),
                 .launch_timeout_ns = kLaunchTimeoutNs});
  rig.program().launches[1].lane = 1 - rig.program().launches[0].lane;
  rig.backend().KnowsWhoIsLate();
  rig.backend().on_asked = [&rig] { rig.backend().silent = {1}; };
  rig.issuer().MakeDue(4, 0);
  for (const uint64_t step : {0, 1}) {
    rig.Make("make_dp", step);
    rig.Make("make_tp", step);
  }
  rig.PumpAll();
  rig.clock().AdvanceNs(kLaunchTimeoutNs / 2);
  rig.PumpAll();
  rig.backend().Finish(rig.Launch("sum_tp"));
  rig.clock().AdvanceNs(kLaunchTimeoutNs / 2);
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'sum_dp'"));
}

TEST_F(LateLaunchTest, WhenItStartedComesToTheTraceLater) {
  rig_.backend().Finish(0);
  rig_.PumpAll();
  const uint64_t key = rig_.program().launches[0].call.key;
  commsched_launch_start_t start = {};
  start.key = key;
  start.started_ns = 12;
  start.error_ns = 3;
  start.last_rank = 2;
  commsched_launch_start_t other = start;  // Of nobody's.
  ++other.key;
  rig_.backend().starts = {start, other};
  rig_.PumpAll();
  const std::vector<Record> starts = recorder_.SnapshotOfStarts();
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].step, 0u);
  EXPECT_EQ(starts[0].index, 0u);
  EXPECT_EQ(StartOf(starts[0]).started_ns, 12);
  EXPECT_EQ(StartOf(starts[0]).error_ns, 3);
  EXPECT_EQ(StartOf(starts[0]).last_rank, 2);
}

TEST(PolledModeTest, AnEndThatTheBackendForetoldIsWokenFor) {
  IssuerRig rig({.graph = Buckets(1), .launch_timeout_ns = kLaunchTimeoutNs});
  rig.Make("make_a");
  rig.issuer().MakeDue(1, 0);
  rig.backend().on_launch = [&](const auto&) {
    rig.backend().launched().back().wake_at_ns = 5000;
  };
  rig.PumpAll();
  EXPECT_EQ(rig.issuer().NextWakeNs(), 5000);
}

TEST(PolledModeTest, AFailedLaunchIsNamedAndNothingIsIssuedAfterIt) {
  IssuerRig rig({.graph = Buckets(2)});
  rig.Make("make_a");
  rig.Make("make_b");
  rig.issuer().MakeDue(2, 0);
  rig.backend().launch_error = "cable";
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "launch #0 all_reduce 'sum_a' on axis dp of step 0"));
  rig.backend().launch_error.clear();
  rig.PumpAll();
  EXPECT_EQ(rig.Launched(), "");
}

TEST(PolledModeTest, AFailedPollFailsTheSession) {
  IssuerRig rig({.graph = Buckets(1)});
  rig.Make("make_a");
  rig.issuer().MakeDue(1, 0);
  rig.PumpAll();
  rig.backend().poll_error = "cable";
  EXPECT_FALSE(rig.issuer().Pump());
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kUnavailable, "cable"));
}

TEST(PolledModeTest, ACommunicatorsFailureShowsWhereNothingIsInFlight) {
  IssuerRig rig({.graph = Buckets(1)});
  rig.PumpAll();
  EXPECT_OK(rig.failure().status());
  rig.backend().status_error = "rank 1 has left";
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kUnavailable, "rank 1 has left"));
}

TEST(PolledModeTest, ByTheCallerMakingDueIssues) {
  IssuerRig rig({.graph = Buckets(1), .by_caller = true});
  rig.Make("make_a");
  rig.issuer().MakeDue(1, 0);
  EXPECT_EQ(rig.Launched(), "sum_a@0");
  rig.backend().Finish(0);
  rig.issuer().Await(rig.program().launches[0].event, 1);
  EXPECT_TRUE(rig.HasCompleted("sum_a"));
}

TEST(PolledModeTest, AWaitThatIsOverLeavesTheLaunchAsItIs) {
  IssuerRig rig({.graph = Buckets(1), .by_caller = true});
  rig.Make("make_a");
  rig.issuer().MakeDue(1, 0);
  Event* const event = rig.program().launches[0].event;
  EXPECT_FALSE(
      rig.issuer().AwaitBy(event, 1, SystemClock::Get().NowNs() + 1000));
  EXPECT_FALSE(rig.HasCompleted("sum_a"));
  rig.backend().Finish(0);
  EXPECT_TRUE(rig.issuer().AwaitBy(event, 1, kNoDeadlineNs));
  EXPECT_TRUE(rig.HasCompleted("sum_a"));
}

// Each side of a move was bound by another `after`, and the two do not match:
// found when the launch would go out.
TEST(PolledModeTest, ALateBindingThatCannotBeAppliedFailsTheSession) {
  test::GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId from = builder.Buffer("from", 8, Ownership::kLateBound);
  const BufferId to = builder.Buffer("to", 16, Ownership::kLateBound);
  builder.Compute("bind_from", {test::Write(from)});
  builder.Compute("bind_to", {test::Write(to)});
  builder.Collective("gather", test::Spec(CollectiveKind::kAllGather, dp,
                                          test::Read(from), test::Write(to)));
  IssuerRig rig({.graph = builder.graph()});
  ASSERT_NE(rig.late(), nullptr);
  std::vector<float> memory(32);
  rig.late()->Store(1, {{from, &memory[0], 4, {}}, {to, &memory[16], 9, {}}});
  rig.Make("bind_from");
  rig.Make("bind_to");
  rig.issuer().MakeDue(1, 0);
  rig.PumpAll();
  EXPECT_THAT(rig.failure().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "'gather'"));
  EXPECT_EQ(rig.Launched(), "");
}

}  // namespace
}  // namespace commsched

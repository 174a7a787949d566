#include "exec/dispatcher.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/exec/issuer_rig.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_device.h"

namespace commsched {
namespace {

using test::Buckets;
using test::GraphBuilder;
using test::IssuerRig;
using test::IssuerRigSpec;
using test::Read;
using test::VirtualStream;
using test::Write;

// A dispatcher on the rig's issuer: compute ops are on the calling thread, and
// launches are inline if not said otherwise.
class DispatcherRig {
 public:
  explicit DispatcherRig(
      Graph graph, IssuerRigSpec::Mode mode = IssuerRigSpec::Mode::kInline)
      : rig_({.graph = std::move(graph), .mode = mode, .caller_lanes = true}) {}

  Dispatcher& dispatcher() {
    if (dispatcher_ != nullptr) return *dispatcher_;
    DispatcherSpec spec;
    spec.program = &rig_.program();
    spec.issuer = &rig_.issuer();
    spec.failure = &rig_.failure();
    spec.late = rig_.late();
    spec.manual = true;
    spec.instruments.clock = &rig_.clock();
    spec.lanes.assign(rig_.program().plan->num_compute_lanes, CallerStream());
    dispatcher_ = std::make_unique<Dispatcher>(std::move(spec));
    return *dispatcher_;
  }
  IssuerRig& rig() { return rig_; }

  absl::Status Before(const std::string& op) {
    return dispatcher().Before(rig_.Node(op), CallerStream());
  }
  absl::Status After(const std::string& op) {
    return dispatcher().After(rig_.Node(op), CallerStream());
  }
  void Call(const std::string& op) {
    ASSERT_OK(Before(op));
    ASSERT_OK(After(op));
  }
  // Launches of the step that are due.
  uint64_t due() { return rig_.issuer().due(); }

 private:
  IssuerRig rig_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

// "make" writes x, "sum" sums it, "use" reads the sum and writes y, "sum_y"
// sums that.
Graph Chain() {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId x = builder.Buffer("x", 4);
  const BufferId y = builder.Buffer("y", 4);
  builder.Compute("make", {Write(x)});
  builder.AllReduce("sum", dp, x);
  builder.Compute("use", {Read(x), Write(y)});
  builder.AllReduce("sum_y", dp, y);
  return builder.graph();
}

// ---- Steps ----

TEST(DispatcherTest, AStepHasABeginningAndAnEnd) {
  DispatcherRig rig(Buckets(1));
  EXPECT_FALSE(rig.dispatcher().in_step());
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_TRUE(rig.dispatcher().in_step());
  rig.Call("make_a");
  ASSERT_OK(rig.dispatcher().StepEnd());
  EXPECT_FALSE(rig.dispatcher().in_step());
  EXPECT_EQ(rig.dispatcher().steps(), 1u);
}

TEST(DispatcherTest, AStepBeginsOnce) {
  DispatcherRig rig(Buckets(1));
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_THAT(rig.dispatcher().StepBegin(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "step_begin: step 0 has not ended"));
}

TEST(DispatcherTest, WhatHasNotBegunDoesNotEnd) {
  DispatcherRig rig(Buckets(1));
  EXPECT_THAT(
      rig.dispatcher().StepEnd(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "no step has begun"));
}

TEST(DispatcherTest, AStepEndsOnlyOnceEveryOpHasHadItsAfter) {
  DispatcherRig rig(Buckets(2));
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make_a");
  ASSERT_OK(rig.Before("make_b"));
  EXPECT_THAT(rig.dispatcher().StepEnd(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 'make_b': its after was not called in step 0"));
  ASSERT_OK(rig.After("make_b"));
  EXPECT_OK(rig.dispatcher().StepEnd());
}

TEST(DispatcherTest, AFailureIsWhatEveryCallReturns) {
  DispatcherRig rig(Buckets(1));
  ASSERT_OK(rig.dispatcher().StepBegin());
  ASSERT_OK(rig.Before("make_a"));
  rig.rig().issuer().Fail(absl::AbortedError("stop"));
  const auto stop = StatusIs(absl::StatusCode::kAborted, "stop");
  EXPECT_THAT(rig.After("make_a"), stop);
  EXPECT_THAT(rig.Before("make_a"), stop);
  EXPECT_THAT(rig.dispatcher().StepEnd(), stop);
  EXPECT_THAT(rig.dispatcher().StepBegin(), stop);
}

// ---- Before and after ----

TEST(DispatcherTest, CallsOutsideAStepAreRefused) {
  DispatcherRig rig(Buckets(1));
  const auto outside = StatusIs(absl::StatusCode::kFailedPrecondition,
                                "op 'make_a' was called outside a step");
  EXPECT_THAT(rig.Before("make_a"), outside);
  EXPECT_THAT(rig.After("make_a"), outside);
}

TEST(DispatcherTest, BeforeComesOnceAStep) {
  DispatcherRig rig(Buckets(1));
  const auto twice =
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "before: op 'make_a' was called a second time in step 0");
  ASSERT_OK(rig.dispatcher().StepBegin());
  ASSERT_OK(rig.Before("make_a"));
  EXPECT_THAT(rig.Before("make_a"), twice);
  ASSERT_OK(rig.After("make_a"));
  EXPECT_THAT(rig.Before("make_a"), twice);
  ASSERT_OK(rig.dispatcher().StepEnd());
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_OK(rig.Before("make_a"));
}

TEST(DispatcherTest, AfterComesBehindBefore) {
  DispatcherRig rig(Buckets(1));
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_THAT(rig.After("make_a"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "its before was not called in step 0"));
  EXPECT_EQ(rig.due(), 0u);
}

TEST(DispatcherTest, AfterComesOnceAStep) {
  DispatcherRig rig(Buckets(1));
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make_a");
  EXPECT_THAT(rig.After("make_a"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "after was already called in step 0"));
  EXPECT_EQ(rig.due(), 1u);
}

TEST(DispatcherTest, AnOpStaysOnItsLane) {
  DispatcherRig rig(Buckets(1));
  VirtualStream other;
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_THAT(rig.dispatcher().Before(rig.rig().Node("make_a"), &other),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 'make_a' was given a stream other than that of its "
                       "lane 0"));
}

TEST(DispatcherTest, BeforeNamesTheOpWhoseAfterIsMissing) {
  DispatcherRig rig(Chain());
  ASSERT_OK(rig.dispatcher().StepBegin());
  ASSERT_OK(rig.Before("make"));
  EXPECT_THAT(rig.Before("use"),
              StatusIs(absl::StatusCode::kUnavailable,
                       "before: op 'use': not yet: waits for op 'make'"));
  ASSERT_OK(rig.After("make"));
  EXPECT_OK(rig.Before("use"));
}

// ---- The due head ----

TEST(DispatcherTest, TheDueHeadMovesInKeyOrder) {
  DispatcherRig rig(Buckets(3));
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make_c");
  EXPECT_EQ(rig.due(), 0u);
  rig.Call("make_a");
  EXPECT_EQ(rig.due(), 1u);
  rig.Call("make_b");
  EXPECT_EQ(rig.due(), 3u);
  EXPECT_EQ(rig.rig().Launched(), "sum_a@0 sum_b@0 sum_c@0");
}

TEST(DispatcherTest, AnAfterOfOneStepMakesNothingDueInTheNext) {
  DispatcherRig rig(Buckets(2));
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make_a");
  rig.Call("make_b");
  ASSERT_OK(rig.dispatcher().StepEnd());
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_EQ(rig.due(), 2u);
  rig.Call("make_b");
  EXPECT_EQ(rig.due(), 2u);
  rig.Call("make_a");
  EXPECT_EQ(rig.due(), 4u);
}

TEST(DispatcherTest, ALaunchIsNotDueBeforeItsGateIsOpen) {
  DispatcherRig rig(Buckets(2));
  rig.rig().program().launches[0].gates = 1;
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make_a");
  rig.Call("make_b");
  EXPECT_EQ(rig.due(), 0u);
  rig.dispatcher().Submit(0);
  EXPECT_EQ(rig.due(), 2u);
}

// Whoever completes something while another thread moves the head leaves that
// to the other.
TEST(DispatcherTest, ThreadsThatRaceMakeEachLaunchDueOnceAndInOrder) {
  constexpr int kThreads = 4;
  constexpr int kBucketsOfThreads = 16;
  constexpr uint64_t kSteps = 50;
  DispatcherRig rig(Buckets(kBucketsOfThreads));
  Dispatcher& dispatcher = rig.dispatcher();
  std::string expected;
  for (uint64_t step = 0; step < kSteps; ++step) {
    ASSERT_OK(dispatcher.StepBegin());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = kBucketsOfThreads - 1 - t; i >= 0; i -= kThreads) {
          const uint32_t node = static_cast<uint32_t>(i);
          EXPECT_OK(dispatcher.Before(node, CallerStream()));
          EXPECT_OK(dispatcher.After(node, CallerStream()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(rig.due(), (step + 1) * kBucketsOfThreads);
    ASSERT_OK(dispatcher.StepEnd());
    for (int i = 0; i < kBucketsOfThreads; ++i) {
      absl::StrAppend(&expected, expected.empty() ? "" : " ", "sum_",
                      std::string(1, static_cast<char>('a' + i)), "@", step);
    }
  }
  EXPECT_EQ(rig.rig().Launched(), expected);
}

// ---- Versions (I12) ----

// The plan's waits, which would keep it from happening, are taken out.
TEST(DispatcherTest, AReadOfAResultThatIsNotThereIsRefused) {
  DispatcherRig rig(Chain(), IssuerRigSpec::Mode::kPolled);
  for (NodeProgram& node : rig.rig().program().nodes) node.waits.count = 0;
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make");
  EXPECT_THAT(rig.Before("use"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "before: op 'use' would read the stale result of launch "
                       "#0 all_reduce 'sum' on axis dp: version 0, needs 1"));
}

TEST(DispatcherTest, AReadOfACompleteResultIsNot) {
  DispatcherRig rig(Chain(), IssuerRigSpec::Mode::kPolled);
  ASSERT_OK(rig.dispatcher().StepBegin());
  rig.Call("make");
  rig.rig().PumpAll();
  rig.rig().backend().Finish(0);
  rig.rig().PumpAll();
  EXPECT_OK(rig.Before("use"));
}

// ---- Late bindings ----

TEST(DispatcherTest, TheAfterOfALateBoundBuffersWriterBindsIt) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId late = builder.Buffer("late", 8, Ownership::kLateBound);
  builder.Compute("bind", {Write(late)});
  builder.AllReduce("sum", dp, late);
  DispatcherRig rig(builder.graph());
  ASSERT_OK(rig.dispatcher().StepBegin());
  ASSERT_OK(rig.Before("bind"));
  EXPECT_THAT(rig.After("bind"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 'bind' writes late-bound buffer 'late' and must "
                       "bind it"));
  EXPECT_EQ(rig.due(), 0u);
  std::vector<float> memory(8);
  const LateBinding binding = {late, memory.data(), 6, {}};
  ASSERT_OK(rig.dispatcher().After(rig.rig().Node("bind"), CallerStream(),
                                   {&binding, 1}));
  ASSERT_EQ(rig.rig().backend().launched().size(), 1u);
  const commsched_launch_t* call = rig.rig().backend().launched()[0].call;
  EXPECT_EQ(call->members[0].input, memory.data());
  EXPECT_EQ(call->members[0].count, 6u);
}

// ---- Replay ----

struct Replayed {
  std::vector<uint32_t> ops;
  uint32_t fails_at = ~uint32_t{0};
};

absl::Status ReplayOp(void* user, OpId op, Stream* stream) {
  EXPECT_EQ(stream, CallerStream());
  auto* replayed = static_cast<Replayed*>(user);
  replayed->ops.push_back(op.value());
  if (op.value() == replayed->fails_at) return absl::DataLossError("bad batch");
  return absl::OkStatus();
}

TEST(DispatcherTest, RunReplaysThePlannedOrderStepByStep) {
  DispatcherRig rig(Chain());
  Replayed replayed;
  ASSERT_OK(rig.dispatcher().Run(&ReplayOp, &replayed, 2));
  EXPECT_EQ(replayed.ops, (std::vector<uint32_t>{0, 2, 0, 2}));
  EXPECT_EQ(rig.rig().Launched(), "sum@0 sum_y@0 sum@1 sum_y@1");
  EXPECT_EQ(rig.dispatcher().steps(), 2u);
}

TEST(DispatcherTest, AStepAfterARunMayBeDrivenByCalls) {
  DispatcherRig rig(Chain());
  Replayed replayed;
  ASSERT_OK(rig.dispatcher().Run(&ReplayOp, &replayed, 1));
  ASSERT_OK(rig.dispatcher().StepBegin());
  EXPECT_THAT(rig.Before("use"),
              StatusIs(absl::StatusCode::kUnavailable, "'make'"));
  rig.Call("make");
  rig.Call("use");
  EXPECT_OK(rig.dispatcher().StepEnd());
  EXPECT_EQ(rig.due(), 4u);
}

TEST(DispatcherTest, AComputeOpThatFailsFailsTheSession) {
  DispatcherRig rig(Chain());
  Replayed replayed;
  replayed.fails_at = 2;
  EXPECT_THAT(rig.dispatcher().Run(&ReplayOp, &replayed, 2),
              StatusIs(absl::StatusCode::kDataLoss, "bad batch"));
  EXPECT_EQ(rig.rig().Launched(), "sum@0");
  EXPECT_EQ(rig.rig().aborts().size(), 1u);
}

}  // namespace
}  // namespace commsched

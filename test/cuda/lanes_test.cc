// Lanes of a device: sessions of all worlds borrow its streams and take turns
// on them.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/cuda/capture_rig.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::CaptureRank;
using test::CaptureStep;
using test::GpuRig;
using test::ReductionStep;

constexpr int kRanks = 2;

PlanOptions Lanes(uint32_t num_lanes) {
  PlanOptions options;
  options.num_comm_lanes = num_lanes;
  return options;
}

// A world, and a step that writes and reduces a gradient per axis there.
struct Job {
  explicit Job(const std::vector<std::string>& axes, uint32_t num_lanes = 1)
      : step(kRanks, Ownership::kOwned, axes),
        rig(kRanks, step.graph(), Lanes(num_lanes)) {}

  // The number `instance` of `world`.
  absl::StatusOr<std::unique_ptr<Session>> Connect(
      const std::shared_ptr<World>& world, uint64_t instance, int rank) {
    SessionSpec spec = rig.Spec(rank);
    spec.world = world;
    spec.instance = instance;
    return Session::Create(std::move(spec));
  }
  absl::Status Run(Session* session, int rank, int num_steps = 1) {
    return RunSteps(session, step, rig.lane(rank, 0), num_steps);
  }

  ReductionStep step;
  GpuRig rig;
};

// Streams that sessions have been lent per device.
class NumLanes {
 public:
  uint64_t operator()() const {
    return (fake_gpu_num_streams() - before_) / kRanks;
  }

 private:
  const uint64_t before_ = fake_gpu_num_streams();
};

// A session of `a` and one of `b`, both in the world of `a`, on each rank.
// Returns how many lanes they had, once both have taken some steps in turn.
uint64_t LanesOfTwo(Job* a, Job* b) {
  const NumLanes num_lanes;
  std::unique_ptr<Session> sessions[2][kRanks];
  uint64_t lanes = 0;
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(sessions[0][rank], a->Connect(a->rig.world(), 0, rank));
    ASSIGN_OR_RETURN(sessions[1][rank], b->Connect(a->rig.world(), 1, rank));
    for (int i = 0; i < 5; ++i) {
      RETURN_IF_ERROR(a->Run(sessions[0][rank].get(), rank));
      RETURN_IF_ERROR(b->Run(sessions[1][rank].get(), rank));
    }
    return absl::OkStatus();
  }));
  lanes = num_lanes();
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    for (auto& of_ranks : sessions) of_ranks[rank].reset();
    return absl::OkStatus();
  }));
  return lanes;
}

TEST(CudaLanesTest, SessionsOfOneAxisShareALane) {
  Job a({"dp"});
  Job b({"dp"});
  EXPECT_EQ(LanesOfTwo(&a, &b), 1u);
}

TEST(CudaLanesTest, SessionsOfOtherAxesHaveLanesOfTheirOwn) {
  Job a({"dp"});
  Job b({"tp"});
  EXPECT_EQ(LanesOfTwo(&a, &b), 2u);
}

TEST(CudaLanesTest, AxesOnOneLaneOfAPlanShareTheDevices) {
  Job a({"dp", "tp"});
  Job b({"dp", "tp"}, /*num_lanes=*/2);
  EXPECT_EQ(LanesOfTwo(&a, &b), 3u);
}

// The next session makes none.
TEST(CudaLanesTest, LanesStayWhenTheirFirstSessionEnds) {
  Job job({"dp"});
  const NumLanes num_lanes;
  for (uint64_t instance = 0; instance < 3; ++instance) {
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(const auto session,
                       job.Connect(job.rig.world(), instance, rank));
      return job.Run(session.get(), rank);
    }));
    EXPECT_EQ(num_lanes(), 1u);
  }
}

TEST(CudaLanesTest, LanesEndWithTheLastWorldOfTheDevice) {
  const uint64_t before = fake_gpu_num_streams();
  auto first = std::make_unique<Job>(std::vector<std::string>{"dp"});
  auto last = std::make_unique<Job>(std::vector<std::string>{"tp"});
  const NumLanes num_lanes;
  for (Job* job : {first.get(), last.get()}) {
    test::ExpectAllOk(
        job->rig.RunSessions([&](Session& session, int rank) -> absl::Status {
          return job->Run(&session, rank);
        }));
  }
  // The second has borrowed what the first has left.
  EXPECT_EQ(num_lanes(), 1u);
  first.reset();
  test::ExpectAllOk(
      last->rig.RunSessions([&](Session& session, int rank) -> absl::Status {
        return last->Run(&session, rank);
      }));
  last.reset();
  EXPECT_EQ(fake_gpu_num_streams(), before);
}

// What a synchronised batch norm does: a collective of its own in the middle of
// a backward pass, on the lane of the gradients or on another one.
TEST(CudaLanesTest, ASessionLaunchesInTheMiddleOfAnothersStep) {
  for (const char* axis : {"tp", "other"}) {
    Job backward({"dp", "tp"});
    Job norm({"dp", axis});
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      const auto& world = backward.rig.world();
      Stream* const lane = backward.rig.lane(rank, 0);
      ASSIGN_OR_RETURN(const auto outer, backward.Connect(world, 0, rank));
      ASSIGN_OR_RETURN(const auto inner, norm.Connect(world, 1, rank));
      for (int i = 0; i < 5; ++i) {
        RETURN_IF_ERROR(outer->StepBegin());
        for (OpId op : backward.step.writes()) {
          RETURN_IF_ERROR(outer->Before(op, lane));
          RETURN_IF_ERROR(outer->After(op, lane));
          // The host waits for its result before the backward pass goes on.
          RETURN_IF_ERROR(norm.Run(inner.get(), rank));
        }
        RETURN_IF_ERROR(outer->StepEnd());
      }
      return outer->Drain();
    }));
  }
}

// Of one rank, whose launches wait for nobody: threads may go in any order.
TEST(CudaLanesTest, SessionsOfTwoThreadsTakeTurns) {
  constexpr int kSteps = 200;
  const ReductionStep step(1, Ownership::kOwned);
  GpuRig rig(1, step.graph(), {});
  GpuRig other(1, step.graph(), {});
  SessionSpec specs[2] = {rig.Spec(0), other.Spec(0)};
  specs[1].world = rig.world();
  specs[1].instance = 1;
  Stream* const streams[2] = {rig.lane(0, 0), other.lane(0, 0)};
  std::unique_ptr<Session> sessions[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(sessions[i], Session::Create(std::move(specs[i])));
  }
  test::ExpectAllOk(RunRanks(2, [&](int i) {
    return RunSteps(sessions[i].get(), step, streams[i], kSteps);
  }));
  for (const auto& session : sessions) {
    EXPECT_EQ(session->counters().launches, uint64_t{kSteps});
  }
}

// One world has all lanes, so that the other's session shares one.
TEST(CudaLanesTest, TheAbortOfAWorldLeavesAnotherOnItsLaneAlone) {
  std::vector<std::string> axes;
  for (size_t i = 0; i < LaneBudget::kLanes; ++i) {
    axes.push_back(absl::StrCat("axis", i));
  }
  Job healthy(axes, LaneBudget::kLanes);
  Job aborted({"dp"});
  const NumLanes num_lanes;
  std::atomic<bool> is_launched{false};
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto lives,
                     healthy.Connect(healthy.rig.world(), 0, rank));
    ASSIGN_OR_RETURN(const auto fails,
                     aborted.Connect(aborted.rig.world(), 0, rank));
    if (rank == 0) {
      // Its kernel waits for rank 1, in front of all that comes on that lane.
      RETURN_IF_ERROR(
          RunStep(fails.get(), aborted.step, aborted.rig.lane(rank, 0)));
      is_launched = true;
    } else {
      EXPECT_TRUE(test::Await([&] { return is_launched.load(); }));
      fails->Abort("enough");
    }
    RETURN_IF_ERROR(healthy.Run(lives.get(), rank, 3));
    EXPECT_TRUE(test::Await([&] { return !fails->status().ok(); }));
    EXPECT_EQ(fails->status().code(), absl::StatusCode::kAborted);
    return absl::OkStatus();
  }));
  EXPECT_EQ(num_lanes(), LaneBudget::kLanes);
}

// A graph has the launches of the session that captures, and no others.
TEST(CudaLanesTest, WhatAnotherSessionLaunchesMeanwhileIsNotCaptured) {
  const CaptureStep step(kRanks);
  GpuRig captured(kRanks, step.graph, {});
  GpuRig plain(kRanks, step.graph, {});
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto captures, Session::Create(captured.Spec(rank)));
    SessionSpec spec = plain.Spec(rank);
    spec.world = captured.world();
    spec.instance = 1;
    ASSIGN_OR_RETURN(const auto steps, Session::Create(std::move(spec)));
    CaptureRank of_captures(step, captures.get(), &captured, rank);
    CaptureRank of_steps(step, steps.get(), &plain, rank);
    RETURN_IF_ERROR(of_captures.RunPlain(1));
    RETURN_IF_ERROR(of_captures.BeginStream(cudaStreamCaptureModeThreadLocal));
    RETURN_IF_ERROR(captures->CaptureBegin(of_captures.origin()));
    RETURN_IF_ERROR(of_captures.EnqueueStep());
    RETURN_IF_ERROR(of_steps.RunPlain(1));
    RETURN_IF_ERROR(captures->CaptureEnd());
    cudaGraph_t graph = nullptr;
    RETURN_IF_ERROR(of_captures.EndStream(&graph));
    cudaGraphDestroy(graph);
    RETURN_IF_ERROR(steps->Drain());
    return captures->Drain();
  }));
}

// A session that captures steps, and one that launches on its lane.
class GraphAndPlain {
 public:
  GraphAndPlain()
      : captured_(1, step_.graph, {}),
        plain_step_(1, Ownership::kOwned),
        plain_(1, plain_step_.graph(), {}) {
    captures_ = Session::Create(captured_.Spec(0)).value();
    SessionSpec spec = plain_.Spec(0);
    spec.world = captured_.world();
    spec.instance = 1;
    steps_ = Session::Create(std::move(spec)).value();
    rank_ =
        std::make_unique<CaptureRank>(step_, captures_.get(), &captured_, 0);
    EXPECT_OK(rank_->RunPlain(1));
    EXPECT_OK(rank_->Capture());
  }
  ~GraphAndPlain() {
    rank_.reset();
    captures_.reset();
  }

  CaptureRank& rank() { return *rank_; }
  Session& captures() { return *captures_; }
  absl::Status PlainStep() {
    return RunStep(steps_.get(), plain_step_, plain_.lane(0, 0));
  }
  absl::Status DrainPlain() { return steps_->Drain(); }
  // The lane that both have.
  std::shared_ptr<DeviceLane> lane() {
    const LaneKey key = {captured_.world().get(), "dp", 0};
    return captured_.world()->BorrowLanes(0, {key}).value()[0];
  }

 private:
  const CaptureStep step_{1};
  GpuRig captured_;
  const ReductionStep plain_step_;
  GpuRig plain_;
  std::unique_ptr<Session> captures_, steps_;
  std::unique_ptr<CaptureRank> rank_;
};

TEST(CudaLanesTest, TheLaunchOfAGraphHasAPlaceAmongThoseOfOthers) {
  GraphAndPlain both;
  const auto lane = both.lane();
  std::atomic<bool> has_launched{false};
  ASSERT_OK(both.captures().ReplayBegin(both.rank().origin()));
  std::thread other([&] {
    EXPECT_OK(both.PlainStep());
    has_launched = true;
  });
  EXPECT_TRUE(test::Await([&] { return lane->turn()->IsWanted(); }));
  EXPECT_FALSE(has_launched);
  EXPECT_EQ(both.rank().Launch(), cudaSuccess);
  EXPECT_OK(both.captures().ReplayEnd());
  other.join();
  EXPECT_OK(both.DrainPlain());
  EXPECT_OK(both.captures().Drain());
}

// It would wait for itself.
TEST(CudaLanesTest, AThreadLaunchesNothingElseBesideItsGraph) {
  GraphAndPlain both;
  ASSERT_OK(both.captures().ReplayBegin(both.rank().origin()));
  EXPECT_THAT(both.PlainStep(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         "its replay_end() comes first"));
  EXPECT_EQ(both.rank().Launch(), cudaSuccess);
  both.captures().ReplayEnd().IgnoreError();
  EXPECT_THAT(both.captures().Drain(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "with session 1 all communicators"));
}

// Whoever waits for the turn gets it, though replay_end() is never called.
TEST(CudaLanesTest, ASessionThatFailsGivesItsTurns) {
  GraphAndPlain both;
  ASSERT_OK(both.captures().ReplayBegin(both.rank().origin()));
  const auto lane = both.lane();
  EXPECT_FALSE(lane->turn()->TryTake());
  both.captures().Abort("enough");
  EXPECT_TRUE(lane->turn()->TryTake());
  lane->turn()->Give();
  EXPECT_THAT(both.PlainStep(), StatusIs(absl::StatusCode::kAborted, "enough"));
}

}  // namespace
}  // namespace commsched

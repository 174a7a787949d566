// Memory that is let go, and memory that a failure spoils.
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Read;
using test::SessionRig;
using test::VirtualJob;
using test::VirtualStream;
using test::Write;

constexpr int kWorldSize = 2;

// backward writes gradient, reduce sums it, step reads it and writes weights;
// nothing of ours touches `apart`.
struct TrainingStep {
  TrainingStep() {
    GraphBuilder builder;
    const GroupId group = builder.Group("dp", kWorldSize);
    gradient = builder.Buffer("gradient", 16);
    weights = builder.Buffer("weights", 16);
    apart = builder.Buffer("apart", 16);
    owned = builder.Buffer("owned", 16, Ownership::kOwned);
    backward = builder.Compute("backward", {Write(gradient), Write(apart)});
    builder.AllReduce("reduce", group, gradient);
    step = builder.Compute("step", {Read(gradient), Write(weights)});
    graph = builder.graph();
  }
  BufferId gradient, weights, apart, owned;
  OpId backward, step;
  Graph graph;
};

class ReleaseTest : public testing::Test {
 protected:
  ReleaseTest() : rig_(World(), made_.graph, {}) { Create(0); }

  static WorldSpec World() {
    WorldSpec spec;
    spec.size = kWorldSize;
    return spec;
  }
  void Create(uint64_t instance) {
    std::vector<SessionSpec> specs;
    for (int r = 0; r < kWorldSize; ++r) {
      specs.push_back(rig_.Spec(r));
      specs.back().instance = instance;
    }
    job_.reset();
    job_ = VirtualJob::Create(specs, 1).value();
  }
  bool Poisoned(BufferId buffer, int rank = 0) {
    return job_->session(rank).BufferPoisoned(buffer).value();
  }

  TrainingStep made_;
  SessionRig rig_;
  VirtualStream other_;  // outlives the sessions
  std::unique_ptr<VirtualJob> job_;
};

TEST_F(ReleaseTest, AStreamWaitsForTheLastUseThatIsDue) {
  VirtualStream& other = other_;
  Session& session = job_->session(0);
  ASSERT_OK(session.BufferRelease(made_.gradient, &other));
  EXPECT_EQ(other.num_queued(), 0u);  // nothing is due yet
  ASSERT_OK(session.StepBegin());
  ASSERT_OK(session.Before(made_.backward, &job_->stream(0, 0)));
  ASSERT_OK(session.After(made_.backward, &job_->stream(0, 0)));
  ASSERT_OK(session.BufferRelease(made_.gradient, &other));
  ASSERT_OK(session.BufferRelease(made_.apart, &other));
  EXPECT_EQ(other.num_queued(), 1u);
  EXPECT_FALSE(other.ready());
  session.Abort("enough");
  EXPECT_TRUE(other.ready());  // nobody waits for ever
  other.RunHead();
}

// Within a step some launches are due once more than others.
TEST_F(ReleaseTest, AStreamWaitsForAUseOfTheStepUnderWay) {
  GraphBuilder builder;
  const GroupId group = builder.Group("dp", kWorldSize);
  const BufferId early = builder.Buffer("early", 16);
  const BufferId late = builder.Buffer("late", 16);
  const OpId first = builder.Compute("first", {Write(early)});
  builder.AllReduce("reduce_early", group, early);
  builder.Compute("second", {Write(late)});
  builder.AllReduce("reduce_late", group, late);
  SessionRig rig(World(), builder.graph(), {});
  auto job = VirtualJob::Create({rig.Spec(0), rig.Spec(1)}, 1).value();
  ASSERT_OK(job->Run(1, nullptr));
  Session& session = job->session(0);
  ASSERT_OK(session.StepBegin());
  ASSERT_OK(session.Before(first, &job->stream(0, 0)));
  ASSERT_OK(session.After(first, &job->stream(0, 0)));
  ASSERT_OK(session.BufferRelease(late, &other_));
  EXPECT_EQ(other_.num_queued(), 0u);
  ASSERT_OK(session.BufferRelease(early, &other_));
  ASSERT_EQ(other_.num_queued(), 1u);
  session.Abort("enough");
  other_.RunHead();
}

TEST_F(ReleaseTest, WhatIsOwnedOrUnknownIsNotReleased) {
  EXPECT_THAT(job_->session(0).BufferRelease(made_.owned, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, "'owned'"));
  EXPECT_THAT(job_->session(0).BufferRelease(BufferId(99), nullptr),
              StatusIs(absl::StatusCode::kNotFound, "99"));
}

TEST_F(ReleaseTest, AFailedStepPoisonsWhatItWasToWrite) {
  ASSERT_OK(job_->Run(2, nullptr));
  EXPECT_FALSE(Poisoned(made_.gradient));
  job_->StopHost(1);
  EXPECT_THAT(
      job_->Run(3, nullptr),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               "rank 1 has not issued #0 all_reduce 'reduce' on axis dp "
               "of step 2; rank 0 has waited for"));
  EXPECT_TRUE(Poisoned(made_.gradient));
  // The worker's stream runs `step` on what is there.
  EXPECT_TRUE(Poisoned(made_.weights));
  EXPECT_FALSE(Poisoned(made_.apart));
}

TEST_F(ReleaseTest, AFailureBetweenStepsPoisonsNothing) {
  ASSERT_OK(job_->Run(2, nullptr));
  job_->session(0).Abort("enough");
  EXPECT_FALSE(Poisoned(made_.gradient));
  EXPECT_FALSE(Poisoned(made_.weights));
}

// What is written by workers without a launch in between is not poisoned, so
// it must not be written in another order.
TEST_F(ReleaseTest, AFailureKeepsTheOrderOfWorkers) {
  GraphBuilder builder;
  const BufferId state = builder.Buffer("state", 16);
  const OpId first = builder.Compute("first", {Write(state)}, {.lane = 0});
  const OpId second =
      builder.Compute("second", {test::ReadWrite(state)}, {.lane = 1});
  WorldSpec world;
  world.size = 1;
  SessionRig rig(world, builder.graph(), {});
  auto job = VirtualJob::Create({rig.Spec(0)}, 1).value();
  Session& session = job->session(0);
  ASSERT_OK(session.StepBegin());
  for (const OpId op : {first, second}) {
    VirtualStream* stream = &job->stream(0, op == first ? 0 : 1);
    ASSERT_OK(session.Before(op, stream));
    stream->Enqueue([] {});
    ASSERT_OK(session.After(op, stream));
  }
  session.Abort("enough");
  EXPECT_FALSE(session.BufferPoisoned(state).value());
  EXPECT_FALSE(job->stream(0, 1).ready());
  while (job->stream(0, 0).ready()) job->stream(0, 0).RunHead();
  EXPECT_TRUE(job->stream(0, 1).ready());
  while (job->stream(0, 1).ready()) job->stream(0, 1).RunHead();
}

// Serial: `second` comes after `first` by way of the launch between them, which
// moves something else.
TEST_F(ReleaseTest, WorkThatAFailureSetsFreePoisonsWhatItWrites) {
  GraphBuilder builder;
  const GroupId group = builder.Group("dp", 1);
  const BufferId state = builder.Buffer("state", 16);
  const BufferId other = builder.Buffer("other", 16);
  builder.Compute("first", {Write(state)}, {.lane = 0});
  builder.AllReduce("reduce", group, other);
  builder.Compute("second", {test::ReadWrite(state)}, {.lane = 1});
  PlanOptions options;
  options.schedule = Schedule::kSerial;
  WorldSpec world;
  world.size = 1;
  SessionRig rig(world, builder.graph(), options);
  auto job = VirtualJob::Create({rig.Spec(0)}, 1).value();
  Session& session = job->session(0);
  ASSERT_OK(session.StepBegin());
  for (const ComputeNode& node : session.plan().nodes) {
    VirtualStream* stream = &job->stream(0, node.lane);
    ASSERT_OK(session.Before(node.op, stream));
    stream->Enqueue([] {});
    ASSERT_OK(session.After(node.op, stream));
  }
  session.Abort("enough");
  EXPECT_TRUE(session.BufferPoisoned(state).value());
  for (int lane : {0, 1}) {
    while (job->stream(0, lane).ready()) job->stream(0, lane).RunHead();
  }
}

TEST_F(ReleaseTest, ANewSessionRunsWhereOneHasFailed) {
  job_->session(1).Abort("enough");
  EXPECT_THAT(job_->Run(1, nullptr),
              StatusIs(absl::StatusCode::kAborted, "enough"));
  Create(1);
  EXPECT_OK(job_->Run(3, nullptr));
}

TEST_F(ReleaseTest, StallsAreCharged) {
  job_->StopHost(1);
  EXPECT_FALSE(job_->Run(1, nullptr).ok());
  EXPECT_FALSE(job_->session(1).Pump());  // ends the stall
  const SessionCounters counters = job_->session(1).counters();
  EXPECT_GE(counters.stall_due_ns, int64_t{19} * 1000 * 1000 * 1000);
  EXPECT_EQ(counters.stall_window_ns, 0);
}

// The stream gets to what it was told to wait for only when the session that
// owns the event is being destroyed.
TEST_F(ReleaseTest, AStreamMayStillWaitWhenTheSessionGoes) {
  SessionRig rig(World(), made_.graph, {});
  std::latch all_released(
      kWorldSize);  // what is destroyed fails the other rank
  const auto statuses = rig.RunRanks([&](int rank) -> absl::Status {
    std::latch go(1);
    auto other = HostStream::Create("allocator", 16).value();
    auto session = Session::Create(rig.Spec(rank)).value();
    RETURN_IF_ERROR(session->StepBegin());
    RETURN_IF_ERROR(session->Before(made_.backward, CallerStream()));
    other->Enqueue([](void* latch) { static_cast<std::latch*>(latch)->wait(); },
                   &go);
    RETURN_IF_ERROR(session->After(made_.backward, CallerStream()));
    RETURN_IF_ERROR(session->BufferRelease(made_.gradient, other.get()));
    all_released.arrive_and_wait();
    std::thread destroyer([&session] { session.reset(); });
    go.count_down();
    destroyer.join();
    other->Synchronize();
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
}

}  // namespace
}  // namespace commsched

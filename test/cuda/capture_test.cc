// Steps that are captured into a graph, and launches of it.
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/capture_rig.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/property.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::CaptureRank;
using test::CaptureStep;
using test::GpuRig;
using test::ParametersOf;
using test::PropertyCases;

PlanOptions InOrder(Schedule schedule, uint32_t num_comm_lanes) {
  PlanOptions options;
  options.schedule = schedule;
  options.deterministic = true;
  options.num_comm_lanes = num_comm_lanes;
  return options;
}

// What ranks that do `body` leave in their parameters.
std::vector<float> Train(
    int num_ranks, const PlanOptions& options,
    const std::function<absl::Status(CaptureRank&, Session&)>& body) {
  const CaptureStep step(num_ranks);
  GpuRig rig(num_ranks, step.graph, options);
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int rank) -> absl::Status {
         CaptureRank trainer(step, &session, &rig, rank);
         RETURN_IF_ERROR(body(trainer, session));
         return session.Drain();
       })) {
    EXPECT_OK(status);
  }
  return ParametersOf(rig, step);
}

std::vector<float> TrainPlain(int num_ranks, const PlanOptions& options,
                              int num_steps) {
  return Train(num_ranks, options, [=](CaptureRank& rank, Session&) {
    return rank.RunPlain(num_steps);
  });
}

class CudaCaptureTest : public testing::Test {
 protected:
  ~CudaCaptureTest() override {
    fake_gpu_delay(0, 0);
    fake_gpu_fail("", 0, 0);
    fake_gpu_async_error(0);
    EXPECT_EQ(fake_gpu_num_graphs(), 0u);
  }
};

// By ranks, schedule and communication lanes.
class CudaReplayTest
    : public CudaCaptureTest,
      public testing::WithParamInterface<std::tuple<int, Schedule, uint32_t>> {
 protected:
  const int ranks_ = std::get<0>(GetParam());
  const PlanOptions options_ =
      InOrder(std::get<1>(GetParam()), std::get<2>(GetParam()));
};

TEST_P(CudaReplayTest, LaunchesGiveTheBitsOfPlainSteps) {
  const std::vector<float> expected = TrainPlain(ranks_, options_, 11);
  for (int seed = 1; seed <= PropertyCases(3); ++seed) {
    fake_gpu_delay(static_cast<uint64_t>(seed), /*most_us=*/200);
    EXPECT_EQ(Train(ranks_, options_,
                    [](CaptureRank& rank, Session&) -> absl::Status {
                      RETURN_IF_ERROR(rank.RunPlain(1));
                      RETURN_IF_ERROR(rank.Capture());
                      return rank.Replay(10);
                    }),
              expected)
        << "seed " << seed;
  }
}

TEST_P(CudaReplayTest, PlainStepsAndLaunchesMayFollowEachOther) {
  const std::vector<float> expected = TrainPlain(ranks_, options_, 13);
  for (int seed = 4; seed < 4 + PropertyCases(3); ++seed) {
    fake_gpu_delay(static_cast<uint64_t>(seed), /*most_us=*/200);
    EXPECT_EQ(Train(ranks_, options_,
                    [](CaptureRank& rank, Session&) -> absl::Status {
                      RETURN_IF_ERROR(rank.RunPlain(3));
                      RETURN_IF_ERROR(rank.Capture());
                      RETURN_IF_ERROR(rank.RunPlain(1));
                      RETURN_IF_ERROR(rank.Replay(2));
                      RETURN_IF_ERROR(rank.ReplayOn(rank.other(), 2));
                      RETURN_IF_ERROR(rank.RunPlain(2));
                      RETURN_IF_ERROR(rank.Replay(1));
                      return rank.RunPlain(2);
                    }),
              expected)
        << "seed " << seed;
  }
}

// Work is done when the seed says so, and as late as it can be.
TEST_P(CudaReplayTest, NothingButTheOrderOfWorkKeepsAccessesApart) {
  const std::vector<float> expected = TrainPlain(ranks_, options_, 9);
  for (int seed = 1; seed <= PropertyCases(10); ++seed) {
    fake_gpu_deterministic(static_cast<uint64_t>(seed));
    const std::vector<float> trained = Train(
        ranks_, options_, [](CaptureRank& rank, Session&) -> absl::Status {
          RETURN_IF_ERROR(rank.RunPlain(1));
          RETURN_IF_ERROR(rank.Capture());
          RETURN_IF_ERROR(rank.Replay(3));
          RETURN_IF_ERROR(rank.ReplayOn(rank.other(), 2));
          RETURN_IF_ERROR(rank.RunPlain(2));
          return rank.Replay(1);
        });
    EXPECT_EQ(fake_gpu_races(), 0u)
        << "seed " << seed << ": " << fake_gpu_first_race();
    fake_gpu_deterministic(0);
    EXPECT_EQ(trained, expected) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaReplayTest,
                         testing::Values(std::tuple(1, Schedule::kOverlap, 1),
                                         std::tuple(2, Schedule::kOverlap, 2),
                                         std::tuple(3, Schedule::kSerial, 1),
                                         std::tuple(4, Schedule::kOverlap, 1)));

TEST_F(CudaCaptureTest, PackedLaunchesAndCapsAreCapturedToo) {
  PlanOptions options = InOrder(Schedule::kOverlap, 1);
  options.coalesce_bytes = 64 * 1024;
  options.max_launches_in_flight = 1;
  const std::vector<float> expected = TrainPlain(2, options, 6);
  fake_gpu_delay(/*seed=*/9, /*most_us=*/200);
  EXPECT_EQ(Train(2, options,
                  [](CaptureRank& rank, Session&) -> absl::Status {
                    RETURN_IF_ERROR(rank.RunPlain(1));
                    RETURN_IF_ERROR(rank.Capture());
                    return rank.Replay(5);
                  }),
            expected);
}

TEST_F(CudaCaptureTest, AStepIsOneLaunchOfAGraph) {
  const std::vector<std::string> calls = {"cudaGraphLaunch",
                                          "cudaEventRecord",
                                          "cudaEventRecordWithFlags",
                                          "cudaStreamWaitEvent",
                                          "cuLaunchKernel",
                                          "cudaMemcpyAsync",
                                          "ncclGroupStart",
                                          "ncclSend",
                                          "ncclAllGather",
                                          "cuMemAlloc",
                                          "cudaEventCreateWithFlags",
                                          "cudaStreamSynchronize"};
  constexpr uint64_t kSteps = 20;
  std::vector<uint64_t> before, after;
  Train(1, InOrder(Schedule::kOverlap, 1),
        [&](CaptureRank& rank, Session&) -> absl::Status {
          RETURN_IF_ERROR(rank.RunPlain(1));
          RETURN_IF_ERROR(rank.Capture());
          RETURN_IF_ERROR(rank.Replay(4));
          for (const std::string& call : calls) {
            before.push_back(fake_gpu_num_calls(call.c_str()));
          }
          RETURN_IF_ERROR(rank.Replay(kSteps));
          for (const std::string& call : calls) {
            after.push_back(fake_gpu_num_calls(call.c_str()));
          }
          return absl::OkStatus();
        });
  ASSERT_EQ(after.size(), calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    // The record is that of the step's end.
    const uint64_t expected = i < 2 ? kSteps : 0;
    EXPECT_EQ(after[i] - before[i], expected) << calls[i];
  }
}

TEST_F(CudaCaptureTest, LaunchesAreStepsAndCapturesAreNot) {
  const CaptureStep step(2);
  GpuRig rig(2, step.graph, {});
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int number) -> absl::Status {
         CaptureRank rank(step, &session, &rig, number);
         RETURN_IF_ERROR(rank.RunPlain(2));
         RETURN_IF_ERROR(rank.Capture());
         RETURN_IF_ERROR(session.Drain());
         EXPECT_EQ(session.counters().steps, 2u);
         EXPECT_EQ(session.counters().launches, 2 * rig.plan().launches.size());
         RETURN_IF_ERROR(rank.Replay(3));
         RETURN_IF_ERROR(rank.RunPlain(1));
         RETURN_IF_ERROR(rank.Replay(1));
         RETURN_IF_ERROR(session.Drain());
         EXPECT_EQ(session.counters().steps, 7u);
         EXPECT_EQ(session.counters().launches, 7 * rig.plan().launches.size());
         for (BufferId buffer : step.parameters) {
           EXPECT_EQ(session.BufferVersion(buffer).value(), 7u);
         }
         for (BufferId buffer : step.gradients) {
           EXPECT_EQ(session.BufferVersion(buffer).value(), 7u);
         }
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

// Of the library's streams, which is the greatest.
TEST_F(CudaCaptureTest, LaunchesInAGraphKeepTheirPriority) {
  int least = 0;
  int greatest = 0;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  Train(2, {}, [&](CaptureRank& rank, Session&) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.Capture());
    for (const char* call : {"ncclReduceScatter", "ncclAllGather"}) {
      EXPECT_EQ(fake_gpu_priority_in_graph(rank.graph(), call), greatest);
    }
    return rank.Replay(1);
  });
}

TEST_F(CudaCaptureTest, TheHostIsAFewLaunchesAheadAtMost) {
  std::atomic<bool> released{false}, ended{false};
  std::atomic<int> begun{0};
  std::thread releaser([&] {
    while (begun.load() < int{Program::kRunAhead} && !ended) {
      std::this_thread::yield();
    }
    // Long enough for a host that does not wait.
    for (int i = 0; i < 20000; ++i) std::this_thread::yield();
    EXPECT_EQ(begun.load(), int{Program::kRunAhead});
    released = true;
  });
  Train(1, {}, [&](CaptureRank& rank, Session& session) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.Capture());
    RETURN_IF_ERROR(session.Drain());
    rank.EnqueueOnOrigin([&] {
      while (!released) std::this_thread::yield();
    });
    for (int t = 0; t < 10; ++t) {
      RETURN_IF_ERROR(rank.Replay(1));
      ++begun;
    }
    return absl::OkStatus();
  });
  ended = true;
  releaser.join();
  EXPECT_EQ(begun.load(), 10);
}

// The monitor looks at events of steps that are under way.
TEST_F(CudaCaptureTest, TheMonitorBreaksNoCaptureInAnyMode) {
  const CaptureStep step(1);  // As that which is trained.
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
        cudaStreamCaptureModeRelaxed}) {
    std::atomic<bool> released{false};
    Train(1, {}, [&](CaptureRank& rank, Session& session) -> absl::Status {
      RETURN_IF_ERROR(rank.RunPlain(2));
      test::RunOn(rank.lane(0), [&] {
        while (!released) std::this_thread::yield();
      });
      absl::Status status = rank.RunPlain(1);
      if (status.ok()) status = rank.BeginStream(mode);
      if (status.ok()) status = session.CaptureBegin(rank.origin());
      const uint64_t looks = fake_gpu_num_calls("cuEventQuery");
      while (status.ok() && session.status().ok() &&
             fake_gpu_num_calls("cuEventQuery") < looks + 4) {
        std::this_thread::yield();
      }
      if (status.ok()) status = rank.EnqueueStep();
      // The host looks, too.
      EXPECT_LE(session.BufferVersion(step.parameters[0]).value(), 3u);
      if (status.ok()) status = session.CaptureEnd();
      cudaGraph_t graph = nullptr;
      if (status.ok()) status = rank.EndStream(&graph);
      cudaGraphDestroy(graph);
      released = true;
      return status;
    });
  }
}

// A stream of somebody else's waits for the end of what a graph does.
TEST_F(CudaCaptureTest, ABufferIsReleasedBehindTheGraphThatUsesIt) {
  const CaptureStep step(1);
  GpuRig rig(1, step.graph, {});
  std::atomic<bool> released{false}, reused{false};
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int number) -> absl::Status {
         CaptureRank rank(step, &session, &rig, number);
         RETURN_IF_ERROR(rank.RunPlain(1));
         RETURN_IF_ERROR(rank.Capture());
         RETURN_IF_ERROR(session.Drain());
         rank.EnqueueOnOrigin([&] {
           while (!released) std::this_thread::yield();
         });
         absl::Status status = rank.Replay(1);
         if (status.ok()) {
           status = session.BufferRelease(step.parameters[0], rank.other());
         }
         test::RunOn(rank.other(), [&] {
           EXPECT_TRUE(released);
           reused = true;
         });
         for (int i = 0; i < 10000; ++i) std::this_thread::yield();
         released = true;
         rank.other()->Synchronize();
         EXPECT_TRUE(reused);
         return status.ok() ? session.Drain() : status;
       })) {
    EXPECT_OK(status);
  }
}

// ---- What is refused: nothing breaks, and the session goes on ----

TEST_F(CudaCaptureTest, AStepOfAStreamThatIsCapturingIsRefused) {
  Train(1, {}, [](CaptureRank& rank, Session& session) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    const auto lane = static_cast<cudaStream_t>(rank.lane(1)->handle().native);
    EXPECT_EQ(cudaStreamBeginCapture(lane, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    EXPECT_THAT(session.StepBegin(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "step_begin: the stream of compute lane 1 is "
                         "capturing; a step is captured between "
                         "commsched_session_capture_begin()"));
    EXPECT_THAT(session.ReplayBegin(rank.lane(1)),
                StatusIs(absl::StatusCode::kFailedPrecondition, "captured"));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(lane, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    return rank.RunPlain(1);
  });
}

TEST_F(CudaCaptureTest, CallsOutOfOrderAreRefused) {
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  Train(1, {}, [&](CaptureRank& rank, Session& session) -> absl::Status {
    EXPECT_THAT(session.CaptureEnd(),
                StatusIs(kPrecondition, "no step is being captured"));
    EXPECT_THAT(session.ReplayEnd(),
                StatusIs(kPrecondition, "replay_begin() comes first"));
    RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
    EXPECT_THAT(session.CaptureBegin(rank.origin()),
                StatusIs(kPrecondition, "no step has run yet"));
    cudaGraph_t graph = nullptr;
    RETURN_IF_ERROR(rank.EndStream(&graph));
    cudaGraphDestroy(graph);
    RETURN_IF_ERROR(rank.RunPlain(1));
    EXPECT_THAT(session.CaptureBegin(rank.origin()),
                StatusIs(kPrecondition, "origin stream is not capturing"));
    EXPECT_THAT(session.CaptureBegin(CallerStream()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "capture_begin: the stream is not one of a CUDA"));
    EXPECT_THAT(session.ReplayBegin(rank.origin()),
                StatusIs(kPrecondition, "no step has been captured"));
    RETURN_IF_ERROR(session.StepBegin());
    EXPECT_THAT(session.CaptureBegin(rank.origin()),
                StatusIs(kPrecondition, "step 1 has not ended"));
    RETURN_IF_ERROR(rank.EnqueueStep());
    RETURN_IF_ERROR(session.StepEnd());
    RETURN_IF_ERROR(rank.Capture());
    RETURN_IF_ERROR(session.ReplayBegin(rank.origin()));
    EXPECT_THAT(session.StepBegin(),
                StatusIs(kPrecondition, "step 2 has not ended"));
    EXPECT_THAT(session.ReplayBegin(rank.origin()),
                StatusIs(kPrecondition, "step 2 has not ended"));
    EXPECT_THAT(session.Drain(),
                StatusIs(kPrecondition, "step 2 has not ended"));
    rank.Launch();
    return session.ReplayEnd();
  });
}

TEST_F(CudaCaptureTest, WithinACapturedStepOtherCallsAreRefused) {
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  const CaptureStep step(1);  // As that which is trained.
  Train(1, {}, [&](CaptureRank& rank, Session& session) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
    RETURN_IF_ERROR(session.CaptureBegin(rank.origin()));
    for (const absl::Status& status :
         {session.StepBegin(), session.CaptureBegin(rank.origin()),
          session.ReplayBegin(rank.origin()), session.Drain(),
          session.BufferRelease(step.parameters[0], rank.other())}) {
      EXPECT_THAT(status, StatusIs(kPrecondition, "a step is being captured"));
    }
    EXPECT_THAT(session.Before(step.step[0], rank.lane(1)),
                StatusIs(absl::StatusCode::kUnavailable,
                         "'step0': not yet: waits for op 'backward0'"));
    EXPECT_THAT(session.Before(step.backward[0], rank.lane(1)),
                StatusIs(absl::StatusCode::kInvalidArgument, "its lane 0"));
    const OpId count = step.counts[0];
    EXPECT_THAT(session.After(count, rank.lane(1)),
                StatusIs(kPrecondition, "its before was not called"));
    RETURN_IF_ERROR(session.Before(count, rank.lane(1)));
    EXPECT_THAT(session.Before(count, rank.lane(1)),
                StatusIs(kPrecondition, "its before was already called"));
    LateBinding binding;
    binding.buffer = step.parameters[0];
    EXPECT_THAT(session.AfterBound(count, rank.lane(1), {&binding, 1}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "which is not late-bound in the captured step"));
    RETURN_IF_ERROR(session.After(count, rank.lane(1)));
    EXPECT_THAT(session.After(count, rank.lane(1)),
                StatusIs(kPrecondition, "its after was already called"));
    // What is given up has no collective, so that the session goes on.
    EXPECT_THAT(session.CaptureEnd(),
                StatusIs(kPrecondition,
                         "its after was not called in the captured step, which "
                         "is given up"));
    cudaGraph_t graph = nullptr;
    (void)rank.EndStream(&graph);
    cudaGraphDestroy(graph);
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.Capture());
    return rank.Replay(2);
  });
}

// The second name is for code whose default stream is another one.
TEST_F(CudaCaptureTest, TheLegacyStreamIsRefusedByBothItsNames) {
  const std::shared_ptr<Device> device = test::FakeDevice(0);
  for (const cudaStream_t name : {cudaStream_t{nullptr}, cudaStreamLegacy}) {
    const CaptureStep step(1);
    GpuRig rig(1, step.graph, {});
    SessionSpec spec = rig.Spec(0);
    ASSERT_OK_AND_ASSIGN(spec.lanes[1], device->Adopt(name));
    const std::vector<Stream*> lanes = spec.lanes;
    ASSERT_OK_AND_ASSIGN(const auto session, Session::Create(std::move(spec)));
    ASSERT_OK(session->StepBegin());
    for (const ComputeNode& node : rig.plan().nodes) {
      ASSERT_OK(session->Before(node.op, lanes[node.lane]));
      ASSERT_OK(session->After(node.op, lanes[node.lane]));
    }
    ASSERT_OK(session->StepEnd());
    Stream* const origin = step.origins[0].get();
    const auto native = static_cast<cudaStream_t>(origin->handle().native);
    ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    EXPECT_THAT(session->CaptureBegin(origin),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "compute lane 1 is the legacy default stream"));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    EXPECT_OK(session->Drain());
  }
}

// So that a counter that stands still shows steps that make none (I6).
TEST_F(CudaCaptureTest, TheEventsOfACaptureAreCountedAndMadeOnce) {
  Train(1, {}, [](CaptureRank& rank, Session& session) -> absl::Status {
    const auto made = [&session] {
      return std::pair(session.counters().events_created,
                       fake_gpu_num_calls("cudaEventCreateWithFlags"));
    };
    RETURN_IF_ERROR(rank.RunPlain(1));
    const auto before = made();
    RETURN_IF_ERROR(rank.Capture());
    const auto after = made();
    EXPECT_GT(after.second, before.second);
    EXPECT_EQ(after.first - before.first, after.second - before.second);
    cudaGraphExecDestroy(rank.TakeGraph());
    RETURN_IF_ERROR(rank.Capture());
    EXPECT_EQ(made(), after);
    return absl::OkStatus();
  });
}

TEST_F(CudaCaptureTest, ALaneOfAnotherCaptureIsRefused) {
  Train(1, {}, [](CaptureRank& rank, Session& session) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    const auto lane = static_cast<cudaStream_t>(rank.lane(1)->handle().native);
    EXPECT_EQ(cudaStreamBeginCapture(lane, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
    EXPECT_THAT(session.CaptureBegin(rank.origin()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "compute lane 1 is being captured into a graph"));
    for (cudaStream_t stream : {lane, rank.native()}) {
      cudaGraph_t graph = nullptr;
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      cudaGraphDestroy(graph);
    }
    return rank.RunPlain(1);
  });
}

TEST_F(CudaCaptureTest, WorkOfTheHostIsRefused) {
  const CaptureStep step(1);
  GpuRig rig(1, step.graph, {});
  rig.compute_by_host();
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int number) -> absl::Status {
         CaptureRank rank(step, &session, &rig, number);
         RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
         EXPECT_THAT(session.CaptureBegin(rank.origin()),
                     StatusIs(absl::StatusCode::kFailedPrecondition,
                              "compute lane 0 is the calling thread"));
         cudaGraph_t graph = nullptr;
         RETURN_IF_ERROR(rank.EndStream(&graph));
         cudaGraphDestroy(graph);
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

TEST_F(CudaCaptureTest, ALateBoundBufferIsRefusedByName) {
  Graph graph;
  Buffer buffer;
  buffer.name = "activations";
  buffer.count = 8;
  buffer.ownership = Ownership::kLateBound;
  const BufferId late = graph.AddBuffer(buffer).value();
  Op write;
  write.name = "write";
  write.accesses = {{late, AccessMode::kWrite, {}}};
  (void)graph.AddOp(write).value();
  Op reduce;
  reduce.name = "reduce";
  reduce.kind = OpKind::kCollective;
  reduce.collective.group = graph.AddGroup("dp", 1).value();
  reduce.collective.input = {late, AccessMode::kRead, {}};
  reduce.collective.output = {late, AccessMode::kWrite, {}};
  (void)graph.AddOp(reduce).value();
  GpuRig rig(1, graph, {});
  for (const absl::Status& status : rig.RunSessions([&](Session&session, int) {
         EXPECT_THAT(session.CaptureBegin(rig.lane(0, 0)),
                     StatusIs(absl::StatusCode::kFailedPrecondition,
                              "buffer 'activations' is late-bound"));
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
}

}  // namespace
}  // namespace commsched

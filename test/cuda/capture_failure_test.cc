// What goes wrong while a step is captured, or while its graph runs, is an
// error of all ranks and a hang of none.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/capture_rig.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::CaptureRank;
using test::CaptureStep;
using test::GpuRig;

constexpr int kCaptureRanks = 3;
constexpr int kInvalid = 1;        // Of CUDA's and of NCCL's.
constexpr int kSticksToAll = 700;  // cudaErrorIllegalAddress

class CudaCaptureFailureTest : public testing::Test {
 protected:
  ~CudaCaptureFailureTest() override {
    fake_gpu_fail("", 0, 0);
    fake_gpu_async_error(0);
    EXPECT_EQ(fake_gpu_num_graphs(), 0u);
  }

  template <typename Body>
  std::vector<absl::Status> Run(const Body& body,
                                int64_t launch_timeout_ns = 0) {
    const CaptureStep step(kCaptureRanks);
    GpuRig rig(kCaptureRanks, step.graph, {});
    if (launch_timeout_ns != 0) rig.set_timeout_ns(launch_timeout_ns);
    return rig.RunSessions([&](Session& session, int number) -> absl::Status {
      CaptureRank rank(step, &session, &rig, number);
      return body(rank, session, number);
    });
  }
  // All ranks run a step, capture one, and launch it; one spoils something
  // before its third launch, when all have captured.
  template <typename Spoil>
  std::vector<absl::Status> RunAndSpoil(const Spoil& spoil,
                                        int64_t launch_timeout_ns = 0) {
    std::atomic<int> num_captured{0};
    return Run(
        [&](CaptureRank& rank, Session& session, int number) -> absl::Status {
          RETURN_IF_ERROR(rank.RunPlain(1));
          RETURN_IF_ERROR(rank.Capture());
          ++num_captured;
          RETURN_IF_ERROR(rank.Replay(2));
          if (number == 1) {
            while (num_captured < kCaptureRanks) std::this_thread::yield();
            RETURN_IF_ERROR(spoil(&session));
          }
          RETURN_IF_ERROR(rank.Replay(50));
          return session.Drain();
        },
        launch_timeout_ns);
  }
};

TEST_F(CudaCaptureFailureTest, AnAbortEndsTheKernelsOfAGraph) {
  const auto statuses = RunAndSpoil([](Session* session) {
    session->Abort("enough");
    return session->status();
  });
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kAborted, "enough"));
  for (int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kAborted, "rank 1: enough"));
  }
}

// The caller may launch its graph once more before it has heard of the failure.
TEST_F(CudaCaptureFailureTest, ALaunchAfterAFailureEndsToo) {
  const auto statuses =
      Run([](CaptureRank& rank, Session& session, int number) -> absl::Status {
        RETURN_IF_ERROR(rank.RunPlain(1));
        RETURN_IF_ERROR(rank.Capture());
        RETURN_IF_ERROR(rank.Replay(2));
        RETURN_IF_ERROR(session.Drain());
        if (number == 1) session.Abort("enough");
        while (session.status().ok()) std::this_thread::yield();
        EXPECT_EQ(rank.Launch(), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(rank.native()), cudaSuccess);
        return session.status();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
  }
}

TEST_F(CudaCaptureFailureTest, ARankThatLaunchesNoGraphIsADeadlineOfTheOthers) {
  const auto statuses = RunAndSpoil(
      [](Session* session) {
        while (session->status().ok()) std::this_thread::yield();
        return session->status();
      },
      /*launch_timeout_ns=*/int64_t{2000} * 1000 * 1000);
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("reduce_scatter 'scatter0"));
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("is not complete on rank"));
  }
}

TEST_F(CudaCaptureFailureTest, AnAsynchronousErrorIsFoundWhileAGraphRuns) {
  const auto statuses = RunAndSpoil([](Session* session) {
    fake_gpu_async_error(6);  // ncclRemoteError
    while (session->status().ok()) std::this_thread::yield();
    return session->status();
  });
  EXPECT_THAT(statuses[1],
              StatusIs(absl::StatusCode::kAborted, "asynchronous error"));
}

TEST_F(CudaCaptureFailureTest, AnErrorThatSticksIsFoundWhileAGraphRuns) {
  const auto statuses = RunAndSpoil([](Session* /*session*/) {
    fake_gpu_fail("cuEventQuery", 1, kSticksToAll);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_FALSE(status.ok());
}

// A graph of a session that was given up is not launched by mistake.
TEST_F(CudaCaptureFailureTest, AfterAFailureEveryCallReturnsIt) {
  Run([](CaptureRank& rank, Session& session, int) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.Capture());
    RETURN_IF_ERROR(session.Drain());
    session.Abort("enough");
    for (const absl::Status& status :
         {session.CaptureBegin(rank.origin()), session.CaptureEnd(),
          session.ReplayBegin(rank.origin()), session.ReplayEnd()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
    }
    return absl::OkStatus();
  });
}

TEST_F(CudaCaptureFailureTest, ASessionThatEndsWithinACapturedStepFailsAll) {
  const auto statuses =
      Run([](CaptureRank& rank, Session& session, int number) -> absl::Status {
        RETURN_IF_ERROR(rank.RunPlain(1));
        if (number == 1) {
          RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
          RETURN_IF_ERROR(session.CaptureBegin(rank.origin()));
          return absl::CancelledError("an exception of the caller's");
        }
        RETURN_IF_ERROR(rank.Capture());
        RETURN_IF_ERROR(rank.Replay(50));
        return session.Drain();
      });
  for (int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank], StatusIs(absl::StatusCode::kAborted,
                                         "rank 1: the session was "
                                         "destroyed inside step"));
  }
}

// A step that is not captured to its end, on one rank. Others have captured
// its collectives, and launch them.
class CudaCaptureGivenUpTest : public CudaCaptureFailureTest {
 protected:
  template <typename GiveUp>
  void ExpectAllFail(const GiveUp& give_up, const std::string& why) {
    const auto statuses = Run(
        [&](CaptureRank& rank, Session& session, int number) -> absl::Status {
          RETURN_IF_ERROR(rank.RunPlain(1));
          if (number == 1) {
            RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
            RETURN_IF_ERROR(session.CaptureBegin(rank.origin()));
            RETURN_IF_ERROR(give_up(rank, session));
            const absl::Status ended = session.CaptureEnd();
            EXPECT_EQ(session.status(), ended);
            return ended;
          }
          RETURN_IF_ERROR(rank.Capture());
          RETURN_IF_ERROR(rank.Replay(50));
          return session.Drain();
        });
    EXPECT_THAT(statuses[1],
                StatusIs(absl::StatusCode::kFailedPrecondition, why));
    for (int rank : {0, 2}) {
      EXPECT_THAT(std::string(statuses[rank].message()),
                  testing::AllOf(testing::HasSubstr("rank 1: "),
                                 testing::HasSubstr(why)));
    }
  }
};

TEST_F(CudaCaptureGivenUpTest, AMissingAfterBehindACollectiveFailsAll) {
  const CaptureStep step(kCaptureRanks);  // As that which is captured.
  ExpectAllFail(
      [&](CaptureRank& rank, Session& session) -> absl::Status {
        RETURN_IF_ERROR(session.Before(step.backward[0], rank.lane(0)));
        return session.After(step.backward[0], rank.lane(0));
      },
      "its after was not called in the captured step, which is given up");
}

TEST_F(CudaCaptureGivenUpTest, ACaptureThatEndsBeforeItsStepFailsAll) {
  ExpectAllFail(
      [](CaptureRank& rank, Session&) -> absl::Status {
        RETURN_IF_ERROR(rank.EnqueueStep());
        cudaGraph_t graph = nullptr;
        EXPECT_FALSE(rank.EndStream(&graph).ok());
        return absl::OkStatus();
      },
      "cudaStreamEndCapture() comes last");
}

TEST_F(CudaCaptureFailureTest, AFailureWithinACapturedStepIsWhatCallsReturn) {
  const auto none = [](void*, OpId, Stream*) { return absl::OkStatus(); };
  Run([&](CaptureRank& rank, Session& session, int) -> absl::Status {
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(session.Drain());
    RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
    RETURN_IF_ERROR(session.CaptureBegin(rank.origin()));
    session.Abort("enough");
    for (const absl::Status& status :
         {session.StepBegin(), session.Run(none, nullptr, 1),
          session.CaptureEnd(), session.StepBegin(),
          session.Run(none, nullptr, 1), session.CaptureEnd()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
    }
    return absl::OkStatus();
  });
}

// What holds up the streams is the caller's: ending NCCL's kernels frees
// nobody.
class CudaBlockedHostTest : public CudaCaptureFailureTest {
 protected:
  // `wait` has the host wait for `block`, and tells when it is about to.
  struct Waiting {
    CaptureRank& rank;
    Session& session;
    std::function<void()> block;
    std::atomic<bool>* is_next;
  };
  template <typename Wait>
  void ExpectFreed(const Wait& wait) {
    const CaptureStep step(1);
    GpuRig rig(1, step.graph, {});
    std::atomic<bool> is_next{false}, returned{false}, released{false};
    const auto statuses =
        rig.RunSessions([&](Session& session, int number) -> absl::Status {
          CaptureRank rank(step, &session, &rig, number);
          RETURN_IF_ERROR(rank.RunPlain(1));
          RETURN_IF_ERROR(rank.Capture());
          RETURN_IF_ERROR(session.Drain());
          std::thread aborter([&] {
            while (!is_next) std::this_thread::yield();
            // Time enough for the host to wait.
            for (int i = 0; i < 2000; ++i) std::this_thread::yield();
            session.Abort("enough");
            const auto limit =
                std::chrono::steady_clock::now() + std::chrono::seconds(10);
            while (!returned && std::chrono::steady_clock::now() < limit) {
              std::this_thread::yield();
            }
            EXPECT_TRUE(returned);
            released = true;
          });
          const absl::Status status =
              wait(Waiting{rank, session,
                           [&released] {
                             while (!released) std::this_thread::yield();
                           },
                           &is_next});
          returned = true;
          is_next = true;
          aborter.join();
          return status;
        });
    EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kAborted, "enough"));
  }
};

TEST_F(CudaBlockedHostTest, AFailureFreesOneThatIsAFewPlainStepsAhead) {
  ExpectFreed([](const Waiting& waiting) -> absl::Status {
    test::RunOn(waiting.rank.lane(0), waiting.block);
    RETURN_IF_ERROR(waiting.rank.RunPlain(Program::kRunAhead));
    *waiting.is_next = true;
    return waiting.rank.RunPlain(1);
  });
}

TEST_F(CudaBlockedHostTest, AFailureFreesOneThatIsAFewLaunchesAhead) {
  ExpectFreed([](const Waiting& waiting) -> absl::Status {
    waiting.rank.EnqueueOnOrigin(waiting.block);
    RETURN_IF_ERROR(waiting.rank.Replay(Program::kRunAhead));
    *waiting.is_next = true;
    return waiting.rank.Replay(1);
  });
}

TEST_F(CudaBlockedHostTest, AFailureFreesOneThatDrainsALaunch) {
  ExpectFreed([](const Waiting& waiting) -> absl::Status {
    waiting.rank.EnqueueOnOrigin(waiting.block);
    RETURN_IF_ERROR(waiting.rank.Replay(1));
    *waiting.is_next = true;
    return waiting.session.Drain();
  });
}

// It is against the contract, and costs the timeout of the end.
TEST_F(CudaCaptureFailureTest, AGraphThatOutlivesItsSessionHoldsUpItsEnd) {
  const CaptureStep step(1);
  GpuRig rig(1, step.graph, {});
  rig.set_end_timeout_ns(int64_t{100} * 1000 * 1000);
  cudaGraphExec_t graph = nullptr;
  const auto statuses =
      rig.RunSessions([&](Session& session, int number) -> absl::Status {
        CaptureRank rank(step, &session, &rig, number);
        RETURN_IF_ERROR(rank.RunPlain(1));
        RETURN_IF_ERROR(rank.Capture());
        RETURN_IF_ERROR(rank.Replay(1));
        graph = rank.TakeGraph();
        return session.Drain();
      });
  EXPECT_OK(statuses[0]);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(fake_gpu_num_comms(), 1u);
  cudaGraphExecDestroy(graph);
  while (fake_gpu_num_comms() != 0) std::this_thread::yield();
}

TEST_F(CudaCaptureFailureTest, WhatAGraphWritesIsPoisonedOnceItMayRun) {
  const CaptureStep step(1);
  GpuRig rig(1, step.graph, {});
  const auto statuses =
      rig.RunSessions([&](Session& session, int number) -> absl::Status {
        CaptureRank rank(step, &session, &rig, number);
        RETURN_IF_ERROR(rank.RunPlain(1));
        RETURN_IF_ERROR(rank.Capture());
        RETURN_IF_ERROR(session.Drain());
        EXPECT_FALSE(session.BufferPoisoned(step.parameters[0]).value());
        RETURN_IF_ERROR(session.ReplayBegin(rank.origin()));
        session.Abort("enough");
        for (BufferId buffer : step.parameters) {
          EXPECT_TRUE(session.BufferPoisoned(buffer).value());
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kAborted, "enough"));
}

// Every call of a capture fails once, at its `n`-th time from then on; other
// ranks have captured the step, and launch it.
class CudaCaptureCallFailsTest
    : public CudaCaptureFailureTest,
      public testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(CudaCaptureCallFailsTest, AllRanksFailAndNoneHangs) {
  const auto [name, code] = GetParam();
  for (uint64_t nth : {1, 3}) {
    const auto statuses = Run(
        [&](CaptureRank& rank, Session& session, int number) -> absl::Status {
          RETURN_IF_ERROR(rank.RunPlain(1));
          RETURN_IF_ERROR(session.Drain());
          if (number == 1) fake_gpu_fail(name, nth, code);
          RETURN_IF_ERROR(rank.Capture());
          RETURN_IF_ERROR(rank.Replay(50));
          return session.Drain();
        });
    fake_gpu_fail("", 0, 0);
    int named = 0;
    for (const absl::Status& status : statuses) {
      EXPECT_FALSE(status.ok()) << name << " at " << nth;
      if (absl::StrContains(status.message(), name)) ++named;
    }
    EXPECT_GE(named, 1) << name << " at " << nth << ": "
                        << testing::PrintToString(statuses);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CudaCaptureCallFailsTest,
    testing::Values(
        std::pair<const char*, int>{"cudaEventRecord", kInvalid},
        std::pair<const char*, int>{"cudaEventRecordWithFlags", kInvalid},
        std::pair<const char*, int>{"cudaStreamWaitEvent", kInvalid},
        std::pair<const char*, int>{"cudaStreamIsCapturing", kInvalid},
        std::pair<const char*, int>{"cuEventQuery", kInvalid},
        std::pair<const char*, int>{"ncclGroupStart", kInvalid},
        std::pair<const char*, int>{"ncclGroupEnd", kInvalid},
        std::pair<const char*, int>{"ncclReduceScatter", kInvalid},
        std::pair<const char*, int>{"ncclAllGather", kInvalid}),
    [](const auto& info) { return info.param.first; });

// Those that only look, or make something, refuse before anything is captured:
// the rank may run the step as it is, and the others with it.
TEST_F(CudaCaptureFailureTest, WhatFailsBeforeTheStepIsCapturedFailsNobody) {
  for (const char* name :
       {"cuStreamGetCaptureInfo", "cudaEventCreateWithFlags"}) {
    const auto statuses = Run(
        [&](CaptureRank& rank, Session& session, int number) -> absl::Status {
          RETURN_IF_ERROR(rank.RunPlain(1));
          RETURN_IF_ERROR(session.Drain());
          if (number == 1) {
            RETURN_IF_ERROR(rank.BeginStream(cudaStreamCaptureModeThreadLocal));
            fake_gpu_fail(name, 1, 2);
            EXPECT_THAT(session.CaptureBegin(rank.origin()),
                        StatusIs(absl::StatusCode::kResourceExhausted, name));
            cudaGraph_t graph = nullptr;
            RETURN_IF_ERROR(rank.EndStream(&graph));
            cudaGraphDestroy(graph);
          }
          RETURN_IF_ERROR(rank.RunPlain(2));
          return session.Drain();
        });
    for (const absl::Status& status : statuses) EXPECT_OK(status);
  }
}

}  // namespace
}  // namespace commsched

// A framework captures on a thread of its own, in the global mode, which is
// that of torch.cuda.graph. What the library does on its threads and on its
// callers' must leave that capture whole.
#include <cuda_runtime_api.h>

#include <memory>
#include <thread>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/cuda/capture_rig.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::CaptureRank;
using test::CaptureStep;
using test::GpuRig;
using test::ReductionStep;

constexpr int kRanks = 2;

class CudaForeignCaptureTest : public testing::Test {
 protected:
  CudaForeignCaptureTest() {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0),
              cudaSuccess);
  }
  ~CudaForeignCaptureTest() override {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  // Whether a capture of this thread is whole after `body`, which another one
  // runs meanwhile.
  template <typename Body>
  cudaError_t EndOfCaptureBeside(const Body& body) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal),
              cudaSuccess);
    std::thread(body).join();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    return ended;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// The rule, in the vendor's calls: a thread begins in the global mode.
TEST_F(CudaForeignCaptureTest, AThreadThatWaitsForAStreamBreaksIt) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0),
            cudaSuccess);
  EXPECT_EQ(EndOfCaptureBeside([&] {
              EXPECT_EQ(cudaStreamSynchronize(other),
                        cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(EndOfCaptureBeside([&] {
              cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
              cudaThreadExchangeStreamCaptureMode(&mode);
              EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
            }),
            cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// What is connected is connected when it is created.
TEST_F(CudaForeignCaptureTest, StepsOfASessionAndItsEndLeaveItWhole) {
  for (const bool deterministic : {false, true}) {
    const ReductionStep step(kRanks, Ownership::kOwned);
    PlanOptions options;
    options.deterministic = deterministic;
    GpuRig rig(kRanks, step.graph(), options);
    std::unique_ptr<Session> sessions[kRanks];
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(sessions[rank], Session::Create(rig.Spec(rank)));
      return absl::OkStatus();
    }));
    EXPECT_EQ(EndOfCaptureBeside([&] {
                test::ExpectAllOk(RunRanks(kRanks, [&](int rank) {
                  const absl::Status status = RunSteps(
                      sessions[rank].get(), step, rig.lane(rank, 0), 10);
                  sessions[rank].reset();
                  return status;
                }));
              }),
              cudaSuccess);
  }
}

// Of one rank nothing is connected.
TEST_F(CudaForeignCaptureTest, TheCreationOfASessionOfOneRankLeavesItWhole) {
  const ReductionStep step(1, Ownership::kOwned);
  GpuRig rig(1, step.graph(), {});
  EXPECT_EQ(EndOfCaptureBeside([&] {
              test::ExpectAllOk(rig.RunSessions(
                  [&](Session& session, int rank) -> absl::Status {
                    return RunSteps(&session, step, rig.lane(rank, 0), 5);
                  }));
            }),
            cudaSuccess);
}

// NCCL looks at events of its own where graphs have launches of a communicator.
TEST_F(CudaForeignCaptureTest, StepsBesideAGraphOfTheSessionsLeaveItWhole) {
  const CaptureStep step(1);
  GpuRig rig(1, step.graph, {});
  test::ExpectAllOk(
      rig.RunSessions([&](Session& session, int number) -> absl::Status {
        CaptureRank rank(step, &session, &rig, number);
        RETURN_IF_ERROR(rank.RunPlain(1));
        RETURN_IF_ERROR(rank.Capture());
        RETURN_IF_ERROR(session.Drain());
        absl::Status status;
        EXPECT_EQ(EndOfCaptureBeside([&] {
                    status = rank.RunPlain(5);
                    if (status.ok()) status = rank.Replay(2);
                    if (status.ok()) status = session.Drain();
                  }),
                  cudaSuccess);
        return status;
      }));
}

}  // namespace
}  // namespace commsched

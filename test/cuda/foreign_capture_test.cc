// A framework captures on a thread of its own, in the global mode, which is
// that of torch.cuda.graph. What the library does on its threads and on its
// callers' must leave that capture whole.
#include <cuda_runtime_api.h>

#include <thread>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

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

// From its creation, which joins communicators, to its end.
TEST_F(CudaForeignCaptureTest, ASessionLeavesItWhole) {
  for (const bool deterministic : {false, true}) {
    const ReductionStep step(kRanks, Ownership::kOwned);
    PlanOptions options;
    options.deterministic = deterministic;
    GpuRig rig(kRanks, step.graph(), options);
    EXPECT_EQ(EndOfCaptureBeside([&] {
                test::ExpectAllOk(rig.RunSessions(
                    [&](Session& session, int rank) -> absl::Status {
                      return RunSteps(&session, step, rig.lane(rank, 0), 5);
                    }));
              }),
              cudaSuccess);
  }
}

}  // namespace
}  // namespace commsched

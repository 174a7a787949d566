// The vendor's rules of stream capture, and that the stand-in keeps them: each
// is shown by the vendor's own calls, and broken once.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched {
namespace {

// Two streams and two words of memory, both of which a capture may begin with
// at 0.
class CaptureRulesTest : public testing::Test {
 protected:
  CaptureRulesTest() {
    Must(cudaSetDevice(0));
    for (cudaStream_t& stream : streams_) {
      Must(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    }
    for (cudaEvent_t& event : events_) {
      Must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    Must(cudaMalloc(&memory_, kBytes));
    Must(cudaMemsetAsync(memory_, 0, kBytes, streams_[0]));
    Must(cudaStreamSynchronize(streams_[0]));
  }
  ~CaptureRulesTest() override {
    fake_gpu_delay(0, 0);
    for (cudaStream_t stream : streams_) {
      Must(cudaStreamSynchronize(stream));
      Must(cudaStreamDestroy(stream));
    }
    for (cudaEvent_t event : events_) Must(cudaEventDestroy(event));
    Must(cudaFree(memory_));
  }

  static void Must(cudaError_t code) { ASSERT_EQ(code, cudaSuccess); }
  static void Instantiate(cudaGraph_t graph, cudaGraphExec_t* exec) {
    Must(cudaGraphInstantiate(exec, graph, 0));
    Must(cudaGraphDestroy(graph));
  }

  void Begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    Must(cudaStreamBeginCapture(streams_[0], mode));
  }
  // Has stream 1 take part, too, and back.
  void Fork() {
    Must(cudaEventRecord(events_[0], streams_[0]));
    Must(cudaStreamWaitEvent(streams_[1], events_[0], 0));
  }
  void Join() {
    Must(cudaEventRecord(events_[1], streams_[1]));
    Must(cudaStreamWaitEvent(streams_[0], events_[1], 0));
  }
  cudaError_t End(cudaGraph_t* graph) {
    return cudaStreamEndCapture(streams_[0], graph);
  }
  void ExpectBroken(cudaError_t why = cudaErrorStreamCaptureInvalidated) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(End(&graph), why);
    EXPECT_EQ(graph, nullptr);
  }
  cudaError_t Set(int value, cudaStream_t stream) {
    return cudaMemsetAsync(memory_, value, kBytes, stream);
  }
  int Value() {
    unsigned char value = 0;
    Must(cudaMemcpy(&value, memory_, 1, cudaMemcpyDeviceToHost));
    return value;
  }

  static constexpr size_t kBytes = 256;
  cudaStream_t streams_[2] = {};
  cudaEvent_t events_[2] = {};
  void* memory_ = nullptr;
};

TEST_F(CaptureRulesTest, CapturedWorkIsDoneByLaunchesOnly) {
  Begin();
  Must(Set(1, streams_[0]));
  cudaGraph_t graph = nullptr;
  Must(End(&graph));
  Must(cudaStreamSynchronize(streams_[0]));
  EXPECT_EQ(Value(), 0);
  cudaGraphExec_t exec = nullptr;
  Instantiate(graph, &exec);
  for (int i = 0; i < 2; ++i) {
    Must(Set(0, streams_[0]));
    Must(cudaGraphLaunch(exec, streams_[0]));
    Must(cudaStreamSynchronize(streams_[0]));
    EXPECT_EQ(Value(), 1);
  }
  Must(cudaGraphExecDestroy(exec));
}

// "Run the graph using the per-node priority attributes rather than the
// priority of the stream it is launched into"
// (cudaGraphInstantiateFlagUseNodePriority).
TEST_F(CaptureRulesTest, NodesKeepThePriorityOfTheirStreamIfThatIsAskedFor) {
  cudaStream_t high = nullptr;
  Must(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -3));
  for (const bool keeps : {false, true}) {
    Must(cudaStreamBeginCapture(high, cudaStreamCaptureModeThreadLocal));
    Must(Set(1, high));
    cudaGraph_t graph = nullptr;
    Must(cudaStreamEndCapture(high, &graph));
    cudaGraphExec_t exec = nullptr;
    Must(cudaGraphInstantiate(
        &exec, graph, keeps ? cudaGraphInstantiateFlagUseNodePriority : 0));
    EXPECT_EQ(fake_gpu_priority_in_graph(exec, "cudaMemsetAsync"),
              keeps ? -3 : 0);
    Must(cudaGraphDestroy(graph));
    Must(cudaGraphExecDestroy(exec));
  }
  Must(cudaStreamDestroy(high));
}

TEST_F(CaptureRulesTest, AStreamThatWaitsForACapturedEventTakesPart) {
  Begin();
  Fork();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  Must(cudaStreamIsCapturing(streams_[1], &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  Join();
  cudaGraph_t graph = nullptr;
  Must(End(&graph));
  Must(cudaStreamIsCapturing(streams_[1], &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  Must(cudaGraphDestroy(graph));
}

TEST_F(CaptureRulesTest, ForksAndJoinsOrderALaunch) {
  fake_gpu_delay(/*seed=*/3, /*most_us=*/200);
  Begin();
  Must(Set(1, streams_[0]));
  Fork();
  Must(Set(2, streams_[1]));
  Join();
  cudaGraph_t graph = nullptr;
  Must(End(&graph));
  cudaGraphExec_t exec = nullptr;
  Instantiate(graph, &exec);
  for (int i = 0; i < 20; ++i) {
    Must(cudaGraphLaunch(exec, streams_[0]));
    Must(cudaStreamSynchronize(streams_[0]));
    EXPECT_EQ(Value(), 2);
  }
  Must(cudaGraphExecDestroy(exec));
}

TEST_F(CaptureRulesTest, WorkThatIsNotJoinedIsAnError) {
  Begin();
  Fork();
  Must(Set(1, streams_[1]));
  ExpectBroken(cudaErrorStreamCaptureUnjoined);
}

TEST_F(CaptureRulesTest, AnEventOfOutsideCannotBeWaitedFor) {
  Must(cudaEventRecord(events_[0], streams_[1]));
  Begin();
  EXPECT_EQ(cudaStreamWaitEvent(streams_[0], events_[0], 0),
            cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(Set(1, streams_[0]), cudaErrorStreamCaptureInvalidated);
  ExpectBroken();
}

TEST_F(CaptureRulesTest, AnEventOfACaptureThatEndedCannotBeWaitedFor) {
  Begin();
  Must(cudaEventRecord(events_[0], streams_[0]));
  cudaGraph_t graph = nullptr;
  Must(End(&graph));
  Must(cudaGraphDestroy(graph));
  EXPECT_EQ(cudaStreamWaitEvent(streams_[1], events_[0], 0),
            cudaErrorStreamCaptureIsolation);
}

TEST_F(CaptureRulesTest, TwoCapturesCannotBeMerged) {
  Begin();
  Must(cudaStreamBeginCapture(streams_[1], cudaStreamCaptureModeThreadLocal));
  Must(cudaEventRecord(events_[1], streams_[1]));
  EXPECT_EQ(cudaStreamWaitEvent(streams_[0], events_[1], 0),
            cudaErrorStreamCaptureMerge);
  ExpectBroken();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(streams_[1], &graph),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRulesTest, TheLegacyStreamIsUnusableBesideABlockingStream) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal),
            cudaErrorStreamCaptureUnsupported);
  cudaStream_t blocking = nullptr;
  Must(cudaStreamCreateWithPriority(&blocking, cudaStreamDefault, 0));
  Must(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(Set(1, nullptr), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph),
            cudaErrorStreamCaptureInvalidated);
  Must(cudaStreamDestroy(blocking));
}

TEST_F(CaptureRulesTest, ACaptureEndsWhereItBegan) {
  Begin();
  Fork();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(streams_[1], &graph),
            cudaErrorStreamCaptureUnmatched);
  ExpectBroken();
  EXPECT_EQ(End(&graph), cudaErrorIllegalState);
}

TEST_F(CaptureRulesTest, OnlyARelaxedCaptureEndsOnAnotherThread) {
  for (const bool relaxed : {false, true}) {
    Begin(relaxed ? cudaStreamCaptureModeRelaxed
                  : cudaStreamCaptureModeThreadLocal);
    cudaGraph_t graph = nullptr;
    cudaError_t code = cudaSuccess;
    std::thread([&] { code = End(&graph); }).join();
    EXPECT_EQ(code, relaxed ? cudaSuccess : cudaErrorStreamCaptureWrongThread);
    if (!relaxed) Must(End(&graph));
    Must(cudaGraphDestroy(graph));
  }
}

TEST_F(CaptureRulesTest, ACapturedEventCannotBeLookedAtInAnyMode) {
  Begin(cudaStreamCaptureModeRelaxed);
  Must(cudaEventRecord(events_[0], streams_[0]));
  EXPECT_EQ(cudaEventQuery(events_[0]), cudaErrorCapturedEvent);
  ExpectBroken();
  EXPECT_EQ(cudaEventQuery(events_[0]), cudaErrorCapturedEvent);
}

TEST_F(CaptureRulesTest, ACapturingStreamCannotBeSynchronized) {
  Begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamSynchronize(streams_[0]),
            cudaErrorStreamCaptureUnsupported);
  ExpectBroken();
}

// What a capture's own thread, and another, get for an unsafe call, by the mode
// of the capture and that of the thread.
TEST_F(CaptureRulesTest, ModesSayWhoMayMakeUnsafeCalls) {
  struct Case {
    cudaStreamCaptureMode capture, thread;
    bool own_may, other_may;
  };
  constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
  constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
  constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
  for (const Case& each :
       {Case{kGlobal, kGlobal, false, false},
        Case{kGlobal, kLocal, false, true}, Case{kGlobal, kRelaxed, true, true},
        Case{kLocal, kGlobal, false, true}, Case{kLocal, kLocal, false, true},
        Case{kLocal, kRelaxed, true, true}, Case{kRelaxed, kGlobal, true, true},
        Case{kRelaxed, kLocal, true, true},
        Case{kRelaxed, kRelaxed, true, true}}) {
    for (const bool own : {true, false}) {
      Begin(each.capture);
      cudaError_t code = cudaSuccess;
      const auto call = [&] {
        cudaStreamCaptureMode mode = each.thread;
        Must(cudaThreadExchangeStreamCaptureMode(&mode));
        void* memory = nullptr;
        code = cudaMalloc(&memory, kBytes);
        Must(cudaThreadExchangeStreamCaptureMode(&mode));
        if (code == cudaSuccess) Must(cudaFree(memory));
      };
      if (own) {
        call();
      } else {
        std::thread(call).join();
      }
      const bool may = own ? each.own_may : each.other_may;
      EXPECT_EQ(code, may ? cudaSuccess : cudaErrorStreamCaptureUnsupported)
          << each.capture << " " << each.thread << " " << own;
      cudaGraph_t graph = nullptr;
      EXPECT_EQ(End(&graph),
                may ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
      Must(cudaGraphDestroy(graph));
    }
  }
}

TEST_F(CaptureRulesTest, EachLaunchRecordsAnExternalEvent) {
  Begin();
  std::atomic<bool> released{true};
  fake_gpu_launch(
      streams_[0],
      [](void* user) {
        while (!*static_cast<std::atomic<bool>*>(user)) {
          std::this_thread::yield();
        }
      },
      &released);
  Must(cudaEventRecordWithFlags(events_[0], streams_[0],
                                cudaEventRecordExternal));
  cudaGraph_t graph = nullptr;
  Must(End(&graph));
  cudaGraphExec_t exec = nullptr;
  Instantiate(graph, &exec);
  EXPECT_EQ(cudaEventQuery(events_[0]), cudaSuccess) << "never recorded";
  for (int i = 0; i < 3; ++i) {
    released = false;
    Must(cudaGraphLaunch(exec, streams_[0]));
    EXPECT_EQ(cudaEventQuery(events_[0]), cudaErrorNotReady);
    released = true;
    Must(cudaStreamSynchronize(streams_[0]));
    EXPECT_EQ(cudaEventQuery(events_[0]), cudaSuccess);
  }
  Must(cudaGraphExecDestroy(exec));
}

// No rule of test/fakes/rules, since it would end gpu_check.
TEST_F(CaptureRulesTest, ALaunchOfARevokedCommunicatorEndsTheProcess) {
  // A process of its own: this one has threads.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto expect = [](ncclResult_t code) { ASSERT_EQ(code, ncclSuccess); };
  ncclUniqueId id;
  expect(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  expect(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  Begin();
  expect(ncclAllReduce(memory_, memory_, 1, ncclFloat, ncclSum, comm,
                       streams_[0]));
  cudaGraph_t graph = nullptr;
  Must(End(&graph));
  cudaGraphExec_t exec = nullptr;
  Instantiate(graph, &exec);
  Must(cudaGraphLaunch(exec, streams_[0]));
  Must(cudaStreamSynchronize(streams_[0]));
  expect(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  EXPECT_DEATH((void)cudaGraphLaunch(exec, streams_[0]),
               "a communicator which has been revoked");
  Must(cudaGraphExecDestroy(exec));
  expect(ncclCommAbort(comm));
}

TEST_F(CaptureRulesTest, AnExternalRecordIsForCapturesOnly) {
  EXPECT_EQ(cudaEventRecordWithFlags(events_[0], streams_[0],
                                     cudaEventRecordExternal),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace commsched

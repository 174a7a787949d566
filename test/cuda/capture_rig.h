// A training step that can be captured, and a rank that trains by it.
#ifndef COMMSCHED_TEST_CUDA_CAPTURE_RIG_H_
#define COMMSCHED_TEST_CUDA_CAPTURE_RIG_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "session/session.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched::test {

// Work of streams, kept until all of them are gone: launches of a graph do it
// again, and those of a device that has failed cannot be waited for.
// Thread-safe.
class KeptWork {
 public:
  std::function<void()>* Keep(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mu_);
    return &work_.emplace_back(std::move(work));
  }

 private:
  std::mutex mu_;
  std::deque<std::function<void()>> work_;
};

// Of each bucket gradients are written, reduce-scattered, a shard of the
// parameters is stepped, on a lane of its own, gathered, and read by the next
// step. On the second lane steps are counted, too, first and last, which
// nothing but the order of the lane keeps apart.
struct CaptureStep {
  static constexpr int kBuckets = 3;
  static constexpr uint64_t kElements = 768;

  explicit CaptureStep(int num_ranks);

  int ranks = 0;
  Graph graph;
  std::vector<BufferId> parameters, gradients;
  std::vector<BufferId> counters;
  std::vector<OpId> counts;
  std::vector<OpId> backward, step;
  const std::unique_ptr<KeptWork> work = std::make_unique<KeptWork>();
  // By rank: a stream to capture from, and another one. Sessions may still wait
  // for them when they end.
  std::vector<std::unique_ptr<Stream>> origins, others;
  std::vector<std::shared_ptr<Device>> devices;  // That made them.
};

// One rank. Its work can be enqueued, captured and launched again and again.
class CaptureRank {
 public:
  // All outlive the rank, which is to go before the session does.
  CaptureRank(const CaptureStep& step, Session* session, GpuRig* rig, int rank);
  ~CaptureRank();

  absl::Status RunPlain(int num_steps);
  // The calls of a step, between what begins and what ends it.
  absl::Status EnqueueStep();
  // From cudaStreamBeginCapture() to a graph that can be launched.
  absl::Status Capture(
      cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
  absl::Status Replay(int num_steps) { return ReplayOn(origin(), num_steps); }
  absl::Status ReplayOn(Stream* stream, int num_steps);
  // The parts of Capture().
  absl::Status BeginStream(cudaStreamCaptureMode mode);
  absl::Status EndStream(cudaGraph_t* out_graph);
  // Work ahead of everything that is in order with the origin stream.
  void EnqueueOnOrigin(std::function<void()> work);

  cudaGraphExec_t graph() const { return exec_; }
  // The graph is the caller's from here on.
  cudaGraphExec_t TakeGraph() { return std::exchange(exec_, nullptr); }
  // One launch of the graph, alone.
  cudaError_t Launch() { return cudaGraphLaunch(exec_, native()); }

  Stream* lane(uint32_t lane) { return rig_.lane(rank_, lane); }
  Stream* origin() { return step_.origins[rank_].get(); }
  Stream* other() { return step_.others[rank_].get(); }
  cudaStream_t native() {
    return static_cast<cudaStream_t>(origin()->handle().native);
  }

 private:
  absl::Status Compute(OpId op, Stream* stream);
  void Count(BufferId counter, Stream* stream);
  // `ranges`: what the work reads and writes (fake_gpu_races()).
  void Enqueue(Stream* stream, const std::vector<fake_gpu_range_t>& ranges,
               std::function<void()> work);

  const CaptureStep& step_;
  Session& session_;
  GpuRig& rig_;
  const int rank_;
  cudaGraphExec_t exec_ = nullptr;
  bool captures_ = false;
};

// The bits of all parameters of all ranks, and of what they have counted: their
// steps, and how often a step that was enqueued was counted out of order.
std::vector<float> ParametersOf(GpuRig& rig, const CaptureStep& step);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_CAPTURE_RIG_H_

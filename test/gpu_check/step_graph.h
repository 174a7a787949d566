#ifndef COMMSCHED_TEST_GPU_CHECK_STEP_GRAPH_H_
#define COMMSCHED_TEST_GPU_CHECK_STEP_GRAPH_H_

#include <cuda_runtime_api.h>

#include <functional>

#include "absl/status/status.h"
#include "device/cuda_runtime.h"
#include "session/session.h"

namespace commsched::gpu_check {

// A step of a session as a CUDA graph, which is captured from a stream and
// launched on it. It must be destroyed before the session.
//
// Owned by one thread, whose current device is that of the stream.
class StepGraph {
 public:
  // Both must outlive the graph.
  StepGraph(Session* session, Stream* stream)
      : session_(*session), stream_(*stream) {}
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // `enqueue` makes the calls of one step, without those that begin and end
  // it. At least one step of the session must have run.
  absl::Status Capture(const std::function<absl::Status()>& enqueue);
  // One step: the graph is launched, and nothing is waited for.
  absl::Status Launch();
  // The graph alone, of which the session hears nothing.
  absl::Status LaunchUnheard();

 private:
  absl::Status CaptureStep(const std::function<absl::Status()>& enqueue);
  cudaStream_t native() const {
    return static_cast<cudaStream_t>(stream_.handle().native);
  }

  Session& session_;
  Stream& stream_;
  const CudaRuntime* cuda_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_STEP_GRAPH_H_

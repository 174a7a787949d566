#include "test/gpu_check/step_graph.h"

#include <dlfcn.h>

#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace commsched::gpu_check {
namespace {

// X(name): cuda<name>. The library itself calls none of these, since graphs
// are its caller's.
#define COMMSCHED_GRAPH_FUNCTIONS(X) \
  X(StreamBeginCapture)              \
  X(StreamEndCapture)                \
  X(GraphInstantiate)                \
  X(GraphLaunch)                     \
  X(GraphDestroy)                    \
  X(GraphExecDestroy)

struct GraphCalls {
#define COMMSCHED_GRAPH_MEMBER(name) decltype(&::cuda##name) name = nullptr;
  COMMSCHED_GRAPH_FUNCTIONS(COMMSCHED_GRAPH_MEMBER)
#undef COMMSCHED_GRAPH_MEMBER
};

absl::StatusOr<GraphCalls> Load() {
  ASSIGN_OR_RETURN(const CudaRuntime* cuda, CudaRuntime::Get());
  Dl_info info = {};
  void* handle = nullptr;
  if (dladdr(reinterpret_cast<void*>(cuda->GetDevice), &info) != 0) {
    handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  if (handle == nullptr) {
    return absl::UnavailableError("the CUDA runtime is no shared library");
  }
  GraphCalls calls;
#define COMMSCHED_GRAPH_LOAD(name)                                         \
  calls.name =                                                             \
      reinterpret_cast<decltype(calls.name)>(dlsym(handle, "cuda" #name)); \
  if (calls.name == nullptr) {                                             \
    return absl::UnavailableError("the CUDA runtime has no cuda" #name);   \
  }
  COMMSCHED_GRAPH_FUNCTIONS(COMMSCHED_GRAPH_LOAD)
#undef COMMSCHED_GRAPH_LOAD
  return calls;
}

const absl::StatusOr<GraphCalls>& Calls() {
  static const auto* const calls = new absl::StatusOr<GraphCalls>(Load());
  return *calls;
}

}  // namespace

StepGraph::~StepGraph() {
  if (exec_ != nullptr) Calls()->GraphExecDestroy(exec_);
}

absl::Status StepGraph::Capture(const std::function<absl::Status()>& enqueue) {
  ASSIGN_OR_RETURN(cuda_, CudaRuntime::Get());
  RETURN_IF_ERROR(Calls().status());
  const GraphCalls& calls = *Calls();
  // Other ranks may be threads of this process.
  RETURN_IF_ERROR(cuda_->Check(
      "cudaStreamBeginCapture",
      calls.StreamBeginCapture(native(), cudaStreamCaptureModeThreadLocal)));
  absl::Status status = CaptureStep(enqueue);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = calls.StreamEndCapture(native(), &graph);
  if (status.ok()) status = cuda_->Check("cudaStreamEndCapture", ended);
  if (status.ok()) {
    // Else launches would lose their priority over compute ops.
    status = cuda_->Check(
        "cudaGraphInstantiate",
        calls.GraphInstantiate(&exec_, graph,
                               cudaGraphInstantiateFlagUseNodePriority));
  }
  if (graph != nullptr) calls.GraphDestroy(graph);
  return status;
}

absl::Status StepGraph::CaptureStep(
    const std::function<absl::Status()>& enqueue) {
  RETURN_IF_ERROR(session_.CaptureBegin(&stream_));
  const absl::Status enqueued = enqueue();
  const absl::Status ended = session_.CaptureEnd();
  return enqueued.ok() ? ended : enqueued;
}

absl::Status StepGraph::Launch() {
  RETURN_IF_ERROR(session_.ReplayBegin(&stream_));
  RETURN_IF_ERROR(LaunchUnheard());
  return session_.ReplayEnd();
}

absl::Status StepGraph::LaunchUnheard() {
  return cuda_->Check("cudaGraphLaunch", Calls()->GraphLaunch(exec_, native()));
}

}  // namespace commsched::gpu_check

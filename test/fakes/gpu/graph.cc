// Graphs that have been captured, of the stand-in of the CUDA runtime.
#include "graph.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "capture.h"
#include "fake_gpu.h"
#include "state.h"

namespace fake_gpu {
namespace {

std::atomic<uint64_t> num_graphs{0};

}  // namespace
}  // namespace fake_gpu

// Its streams run side by side, as far as its edges allow. Two launches of it
// do not: "Each launch is ordered behind both any previous work in stream and
// any previous launches of graphExec" (cudaGraphLaunch).
struct CUgraphExec_st {
  // Without `keeps_priorities` nodes run with that of the stream on which the
  // graph is launched, here always the least.
  CUgraphExec_st(const CUgraph_st& captured, bool keeps_priorities)
      : graph(captured) {
    for (const int priority : graph.priorities) {
      streams.push_back(std::make_unique<fake_gpu::Stream>(
          graph.device, fake_gpu::StreamKind::kNonBlocking,
          keeps_priorities ? priority : 0));
    }
  }

  void Launch(fake_gpu::Stream* on);

  const CUgraph_st graph;
  std::mutex mu;
  std::vector<std::unique_ptr<fake_gpu::Stream>> streams;
};

void CUgraphExec_st::Launch(fake_gpu::Stream* on) {
  const std::lock_guard<std::mutex> lock(mu);
  const std::shared_ptr<fake_gpu::Marker> begun = on->Record();
  std::vector<std::shared_ptr<fake_gpu::Marker>> done;
  for (const fake_gpu::GraphNode& node : graph.nodes) {
    fake_gpu::Stream& stream = *streams[node.stream];
    stream.WaitFor(begun);
    for (size_t each : node.after) stream.WaitFor(done[each]);
    if (node.bind) stream.Enqueue(node.name.c_str(), node.ranges, node.bind());
    done.push_back(stream.Record());
    // "Each launch of the graph will record event to capture execution of the
    // node's dependencies" (cudaGraphAddEventRecordNode).
    if (node.event != nullptr) fake_gpu::SetRecord(node.event, done.back());
  }
  for (auto& each : done) on->WaitFor(std::move(each));
}

uint64_t fake_gpu_num_graphs(void) { return fake_gpu::num_graphs; }

int fake_gpu_priority_in_graph(const void* exec, const char* name) {
  const auto* const instantiated = static_cast<const CUgraphExec_st*>(exec);
  int least = INT_MIN;
  for (const fake_gpu::GraphNode& node : instantiated->graph.nodes) {
    if (node.name != name) continue;
    least = std::max(least, instantiated->streams[node.stream]->priority());
  }
  return least;
}

// "Run the graph using the per-node priority attributes rather than the
// priority of the stream it is launched into"
// (cudaGraphInstantiateFlagUseNodePriority). Other flags are not modelled.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  FAKE_ENTER();
  if (graph == nullptr ||
      (flags & ~uint64_t{cudaGraphInstantiateFlagUseNodePriority}) != 0) {
    return fake_gpu::Failed(cudaErrorInvalidValue);
  }
  *exec = new CUgraphExec_st(
      *graph, (flags & cudaGraphInstantiateFlagUseNodePriority) != 0);
  ++fake_gpu::num_graphs;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  FAKE_ENTER();
  if (exec == nullptr || !fake_gpu::IsKnown(stream)) {
    return fake_gpu::Failed(cudaErrorInvalidValue);
  }
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  fake_gpu::Stream* const on = fake_gpu::StreamOf(stream);
  // A graph within a graph is not modelled.
  if (fake_gpu::IsCapturing(on)) return fake_gpu::Failed(cudaErrorNotSupported);
  exec->Launch(on);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const int code = fake_gpu::Enter(__func__);
  delete graph;
  return static_cast<cudaError_t>(code);
}

// Here it waits for launches that are in progress, which nobody may rely on.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const int code = fake_gpu::Enter(__func__);
  delete exec;
  --fake_gpu::num_graphs;
  return static_cast<cudaError_t>(code);
}

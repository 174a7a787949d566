#ifndef COMMSCHED_TEST_FAKES_GPU_GRAPH_H_
#define COMMSCHED_TEST_FAKES_GPU_GRAPH_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "clocks.h"
#include "work.h"

namespace fake_gpu {

// Makes a piece of work, once for each launch of the graph that has it.
using BindWork = std::function<Work()>;

struct GraphNode {
  size_t stream = 0;  // Of those that were captured: which one it was on.
  std::string name;
  std::vector<Range> ranges;
  BindWork bind;  // Null: the node records an event.
  cudaEvent_t event = nullptr;
  std::set<size_t> after;  // Nodes.
};

}  // namespace fake_gpu

struct CUgraph_st {
  int device = 0;
  std::vector<int> priorities;             // Of those streams.
  std::vector<fake_gpu::GraphNode> nodes;  // In the order of their capture.
  // What must not go before the graph and what was made of it.
  std::vector<std::shared_ptr<void>> held;
};

#endif  // COMMSCHED_TEST_FAKES_GPU_GRAPH_H_

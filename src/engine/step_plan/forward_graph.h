#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_FORWARD_GRAPH_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_FORWARD_GRAPH_H_

#include <cstddef>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/session.h"
#include "engine/model/graph_writer.h"
#include "engine/model/module_steps.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

// Memory of the step that an evaluation uses, too.
struct ForwardMemory {
  std::vector<std::byte*> gathered;  // By StepGraph::gathered.
  // By bucket, this rank's; null: not gathered.
  std::vector<std::byte*> shards;
};

// One forward of every module without a step: what an evaluation runs in stage
// 3, and where modules have ops. Buckets are gathered to where the step has
// them in the forward of its first micro-batch, so that it takes no memory of
// its own.
struct ForwardGraph {
  GraphHandle graph;
  std::vector<Pass> passes;
  std::vector<PassOps> pass_ops;  // By pass; without values: the step's.
  std::vector<commsched_binding_t> bindings;
};

// Fails as the graph functions do.
Status BuildForwardGraph(const StepSpec& spec,
                         const std::vector<Module>& modules,
                         const Exchanges& exchanges, const Layout& layout,
                         const Sequence& sequence, const StepGraph& step,
                         const ForwardMemory& memory, ForwardGraph* out_graph);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_FORWARD_GRAPH_H_

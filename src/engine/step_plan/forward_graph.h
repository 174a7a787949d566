#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_FORWARD_GRAPH_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_FORWARD_GRAPH_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "engine/model/graph_writer.h"
#include "engine/model/module_steps.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

// One forward of every module without a step: what an evaluation runs in stage
// 3, and where modules have ops. Buckets are gathered to where the step has
// them in one forward of its own, so that it takes no memory beside.
struct ForwardGraph {
  GraphHandle graph;
  std::vector<Pass> passes;
  std::vector<PassOps> pass_ops;  // By pass; without values: the step's.

  // What its session is bound to. By bucket: this rank's shard; kNoId: not
  // gathered.
  std::vector<commsched_buffer_id_t> shards;
  // The part of the step's arena that it gathers into; kNoId: none.
  commsched_buffer_id_t gathered = kNoId;
  uint64_t arena_offset = 0;
  uint64_t arena_bytes = 0;
  // Activation i is buffer `first_activation` + i.
  commsched_buffer_id_t first_activation = 0;
  // StepSpec::uneven_evaluations: after the last pass a rank says whether
  // another forward comes, and learns whether one comes on any rank.
  commsched_buffer_id_t more = kNoId;
  commsched_op_id_t say_more = kNoId;
};

// `one_forward`: its passes among those of the step, by index. `offsets`: where
// the buffers of StepGraph::gathered begin in the arena of the step. Fails as
// the graph functions do.
Status BuildForwardGraph(const StepSpec& spec,
                         const std::vector<Module>& modules,
                         const Exchanges& exchanges, const Layout& layout,
                         const std::vector<uint32_t>& one_forward,
                         const StepGraph& step,
                         const std::vector<uint64_t>& offsets,
                         ForwardGraph* out_graph);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_FORWARD_GRAPH_H_

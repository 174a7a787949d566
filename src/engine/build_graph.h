#ifndef COMMSCHED_SRC_ENGINE_BUILD_GRAPH_H_
#define COMMSCHED_SRC_ENGINE_BUILD_GRAPH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "commsched/graph.h"
#include "layout.h"
#include "status.h"

namespace commsched::engine {

// What shapes a step.
struct StepSpec {
  uint32_t zero_stage = 0;
  uint32_t micro_batches = 1;
  int32_t world = 1;  // Data-parallel ranks.
  bool clip = false;
  bool deterministic = false;

  // Optimizer shards per bucket.
  uint64_t num_shards() const {
    return zero_stage == 0 ? 1 : static_cast<uint64_t>(world);
  }
  // The ranks keep only shards of the reduced gradients.
  bool owned_gradients() const { return zero_stage == 2; }
  // How ranks that hold shards agree on the norm. With whole gradients every
  // rank computes it alone.
  bool gathers_block_sums() const {
    return clip && zero_stage > 0 && deterministic;
  }
  bool reduces_norm() const { return clip && zero_stage > 0 && !deterministic; }
};

struct GraphDelete {
  void operator()(commsched_graph_t* graph) const {
    commsched_graph_destroy(graph);
  }
};

inline constexpr uint32_t kNoId = ~uint32_t{0};

// Ids of one bucket's buffers and ops; kNoId where the step has none.
struct BucketIds {
  commsched_buffer_id_t parameters = kNoId;  // All elements, every stage.
  commsched_buffer_id_t gradients = kNoId;   // All elements.
  commsched_buffer_id_t shard = kNoId;       // Stage 2: the reduced gradients.
  commsched_buffer_id_t state = kNoId;       // m, then v, of one shard.
  commsched_op_id_t squares = kNoId;
  commsched_op_id_t optimizer = kNoId;
  commsched_op_id_t first_backward = kNoId;
};

// A forward or backward in the order in which the caller runs them.
struct ModuleOp {
  commsched_op_id_t op = kNoId;
  uint32_t module = 0;
  uint32_t micro_batch = 0;
  bool backward = false;
  std::vector<uint32_t> zeroed;  // Buckets whose gradients it zeroes first.
};

// The graph of one training step:
//
//   forward and backward of every module and micro-batch, in a chain;
//   stage 0:    ALL_REDUCE_b -> adamw_b
//   stage 1, 2: REDUCE_SCATTER_b -> adamw_b on the shard -> ALL_GATHER_b
//   clipping:   squares_b -> (exchange) -> norm -> every adamw_b
struct StepGraph {
  std::unique_ptr<commsched_graph_t, GraphDelete> graph;
  std::vector<BucketIds> buckets;
  std::vector<ModuleOp> module_ops;

  // With clipping. Block sums of this rank's shards, bucket after bucket, and
  // of all ranks, rank after rank.
  commsched_buffer_id_t local_sums = kNoId;
  commsched_buffer_id_t all_sums = kNoId;
  commsched_buffer_id_t total = kNoId;   // One f64: the sum over the ranks.
  commsched_buffer_id_t factor = kNoId;  // One f64: the clipping factor.
  std::vector<uint64_t> sums_offset;     // By bucket, in local_sums.
  uint64_t local_blocks = 0;             // Size of local_sums.
  commsched_op_id_t local_total = kNoId;
  commsched_op_id_t norm = kNoId;
};

// Fails as the graph functions do.
Status BuildStepGraph(const StepSpec& spec, const std::vector<Module>& modules,
                      const Layout& layout, StepGraph* out_graph);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_BUILD_GRAPH_H_

#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_STEP_GRAPH_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_STEP_GRAPH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/graph.h"
#include "engine/model/graph_writer.h"
#include "engine/model/module_steps.h"
#include "engine/model/passes.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/search/residency.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {

// Adds what the reduction of one micro-batch has left to that of the earlier
// ones; the first, where it is not there already.
struct Accumulation {
  uint32_t bucket = 0;
  commsched_op_id_t op = kNoId;
  bool first = false;
};

// Makes gradients of another type, or adds them to such.
struct Conversion {
  uint32_t bucket = 0;
  commsched_op_id_t op = kNoId;
  uint64_t count = 0;
  bool adds = false;
  commsched_dtype_t from_dtype = COMMSCHED_F32;
  commsched_dtype_t into_dtype = COMMSCHED_F32;
  commsched_buffer_id_t from = kNoId;
  commsched_buffer_id_t into = kNoId;
};

// Ends what a pass adds to a bucket.
struct BucketReady {
  uint32_t bucket = 0;
  commsched_op_id_t op = kNoId;
};

// What a graph has for a pass.
struct PassOps {
  commsched_op_id_t op = kNoId;
  std::vector<commsched_op_id_t> inner;  // Ops that were added to the module.
  std::vector<uint32_t> zeroed;  // Buckets whose gradients it zeroes first.
  // Where it reads the parameters of each of its module's buckets.
  std::vector<commsched_buffer_id_t> values;
  // Where a backward adds to the gradients of each of them.
  std::vector<commsched_buffer_id_t> gradients;
  // Accumulations of the micro-batch before, which run first.
  std::vector<Accumulation> accumulations;
  // Conversions of the buckets that it is the last to touch in its micro-batch,
  // which run afterwards.
  std::vector<Conversion> conversions;
  // With StepSpec::gradient_ready, the ops of the same buckets, each before its
  // conversions; and the op until which the pass reads its parameters.
  std::vector<BucketReady> ready;
  commsched_op_id_t tail = kNoId;

  commsched_op_id_t last() const {
    if (tail != kNoId) return tail;
    return inner.empty() ? op : inner.back();
  }
};

// Ids of one bucket's buffers and ops; kNoId where the step has none.
struct BucketIds {
  // There are as many of each kind as the bucket's table says; kNoId for a
  // micro-batch that has none.
  std::array<std::vector<commsched_buffer_id_t>, kNumBufferKinds> buffers;
  commsched_op_id_t accumulate = kNoId;  // Of the last micro-batch.
  commsched_op_id_t squares = kNoId;
  commsched_op_id_t optimizer = kNoId;
  // Offloaded state: copied into a slot for the optimizer, and out of it.
  uint32_t slot = 0;
  commsched_op_id_t fetch = kNoId;
  commsched_op_id_t store = kNoId;
  // Offloaded gradients: reduced into a slot or added up there and copied out
  // of it, and into it for the squares and for the optimizer, unless they are
  // there still.
  uint32_t gradient_slot = 0;
  commsched_op_id_t store_gradients = kNoId;  // The last of its turns.
  commsched_op_id_t fetch_squares = kNoId;
  commsched_op_id_t fetch_gradients = kNoId;
  commsched_op_id_t first_backward = kNoId;

  std::vector<commsched_buffer_id_t>& all(BufferKind kind) {
    return buffers[static_cast<size_t>(kind)];
  }
  const std::vector<commsched_buffer_id_t>& all(BufferKind kind) const {
    return buffers[static_cast<size_t>(kind)];
  }
  commsched_buffer_id_t of(BufferKind kind, uint32_t micro_batch = 0) const {
    const std::vector<commsched_buffer_id_t>& ids =
        buffers[static_cast<size_t>(kind)];
    if (ids.empty()) return kNoId;
    return ids.size() == 1 ? ids.front() : ids[micro_batch];
  }
  // What adds up to what is reduced after `micro_batch`.
  commsched_buffer_id_t uncast_in(uint32_t micro_batch) const {
    const commsched_buffer_id_t accumulated = of(BufferKind::kAccumulated);
    return accumulated != kNoId ? accumulated
                                : of(BufferKind::kGradients, micro_batch);
  }
  // What that reduction reads.
  commsched_buffer_id_t unreduced_in(uint32_t micro_batch) const {
    const commsched_buffer_id_t sent = of(BufferKind::kSent, micro_batch);
    return sent != kNoId ? sent : uncast_in(micro_batch);
  }
};

// A gathered bucket during one of its stays.
struct Gathered {
  Stay stay;
  commsched_buffer_id_t buffer = kNoId;
};

// A bucket's turn in its slot for offloaded gradients: what one reduction
// leaves is reduced into the slot, or added to the sum that was fetched there,
// and copied out of it.
struct GradientTurn {
  uint32_t bucket = 0;
  uint32_t micro_batch = 0;
  uint32_t num_passes = 0;  // It comes once so many are over.
  bool adds = false;        // Else the reduction is into the slot.
  bool first = false;       // Of those that add: there is no sum yet.
  // The turn that is next in the slot, if its sum has to be fetched there.
  uint32_t fetches_for = kNoId;
  commsched_buffer_id_t summand = kNoId;  // What it adds.
  commsched_op_id_t fetch = kNoId;        // None if the sum is there still.
  commsched_op_id_t accumulate = kNoId;
  commsched_op_id_t store = kNoId;
};

// The graph of one training step:
//
//   forward and backward of every module and micro-batch, in a chain, each with
//               the ops and collectives that were added to it;
//   stage 0:    ALL_REDUCE_b -> adamw_b (or sgd_b)
//   stage 1, 2: REDUCE_SCATTER_b -> adamw_b on the shard -> ALL_GATHER_b
//   stage 3:    as stage 2 for resident buckets; of the others, for each stay,
//               ALL_GATHER_b after the module op before stay.launch -> the
//               module ops stay.first to stay.last
//   clipping, check_finite:
//               squares_b -> (exchange) -> norm -> every adamw_b
//   norm over several parts of the model:
//               ... (exchange) -> norm_part -> gather_norm_parts -> norm
//   loss scale: the same, and norm -> backwards of the next step
//   flags:      set_flags after the last pass -> reduce_flags -> (over the
//               parts, reduce_cancelled) -> norm or, without one, read_flags ->
//               every adamw_b; norm_sums is what waits for the sums of the
//               norm, which can be read before the flags are set
//   otherwise, or in stage 0: adamw_b of one bucket ->
//               gather_learning_rates -> adamw_b of the next step; without a
//               norm also gather_part_learning_rates, over the parts
//
// A bucket is reduced after the last backward that touches it, in the last
// micro-batch or, if it is reduced at once, in each. Then that of the first
// leaves the shard (stage 0: the whole), and those of the others what
// accumulate_b.k adds to it, in the order of the micro-batches: as late as can
// be, before the first backward that touches the bucket in the one after, or
// before the optimizer.
//
// With offloaded state, on a lane of their own, fetch_b -> adamw_b -> store_b:
// those of the first buckets to be stepped before the first module op, each of
// the others once the bucket that had its slot before has been stored.
//
// With offloaded gradients, on the same lane: REDUCE_SCATTER_b into a slot ->
// store_gradients_b; after the last pass, with a norm, fetch_squares_b ->
// squares_b, and fetch_gradients_b -> adamw_b of what is in no slot then. A
// bucket that is reduced at once adds up in the pool. Its first reduction is
// into a slot, too, if what travels is fp32. With any other comes
// fetch_sum_b.k, once the turn before in the slot is over -> accumulate_b.k,
// kReductionPasses after the last backward that adds to what is reduced ->
// store_gradients_b.k.
//
// Where types differ, after the last backward that touches the bucket in micro-
// batch k: fold_b.k adds its gradients to the sum, cast_b makes what travels.
struct StepGraph {
  GraphHandle graph;
  std::vector<BucketIds> buckets;
  std::vector<Pass> passes;
  std::vector<PassOps> pass_ops;               // By pass.
  std::vector<Gathered> gathered;              // In the order of the stays.
  std::vector<commsched_buffer_id_t> staging;  // By slot.
  // Activation i is buffer `first_activation` + i.
  commsched_buffer_id_t first_activation = 0;
  // Trained buckets in the order in which ops first use them: they are stepped
  // in it, and reduced in the opposite one.
  std::vector<uint32_t> first_use;
  std::vector<uint32_t> staged;  // Of these, those with offloaded state.
  // Those of first_use with offloaded gradients; slots of gradients; and turns
  // in these, in the order in which they end.
  std::vector<uint32_t> staged_gradients;
  std::vector<commsched_buffer_id_t> gradient_staging;
  std::vector<GradientTurn> gradient_turns;

  bool has_copies() const {
    return !staged.empty() || !staged_gradients.empty();
  }

  // What a norm has: block sums of this rank's shards, bucket after bucket, and
  // its learning rate if they are gathered; and those of all ranks, rank after
  // rank.
  commsched_buffer_id_t local_sums = kNoId;
  commsched_buffer_id_t all_sums = kNoId;
  // The sum over the ranks, and the learning rate of each.
  commsched_buffer_id_t total = kNoId;
  // The sum of this rank's part of the model with what it steps with, and the
  // same of all parts: gathers_parts().
  commsched_buffer_id_t part = kNoId;
  commsched_buffer_id_t parts = kNoId;
  commsched_op_id_t add_part = kNoId;
  commsched_buffer_id_t control = kNoId;  // All of a LossScale.
  std::vector<uint64_t> sums_offset;      // By bucket, in local_sums.
  uint64_t local_blocks = 0;              // Of local_sums.
  uint64_t local_count = 0;               // Those, and the learning rate.
  // The learning rate of each rank: gathers_rates().
  commsched_buffer_id_t rates = kNoId;
  // That of each rank with another part of the model: gathers_part_rates().
  commsched_buffer_id_t part_rates = kNoId;
  uint32_t rate_bucket = kNoId;  // Whose step sends this rank's.
  commsched_op_id_t local_total = kNoId;
  commsched_op_id_t norm = kNoId;
  // StepSpec::has_flags(). Without a norm read_flags is in its place.
  commsched_buffer_id_t flags = kNoId;
  commsched_op_id_t set_flags = kNoId;
  commsched_op_id_t norm_sums = kNoId;
  commsched_op_id_t read_flags = kNoId;
};

// `passes` are those of PassOrder(), each module among them. `stays`: of
// stage 3's gathered buckets, as PlanStays() gives them; each use is covered by
// one. Fails as the graph functions do.
Status BuildStepGraph(const StepSpec& spec, const std::vector<Module>& modules,
                      const Exchanges& exchanges, const Layout& layout,
                      const std::vector<Pass>& passes,
                      const std::vector<Stay>& stays, StepGraph* out_graph);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_STEP_GRAPH_H_

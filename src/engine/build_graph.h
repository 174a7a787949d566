#ifndef COMMSCHED_SRC_ENGINE_BUILD_GRAPH_H_
#define COMMSCHED_SRC_ENGINE_BUILD_GRAPH_H_

#include <cstdint>
#include <vector>

#include "commsched/graph.h"
#include "engine/model/graph_writer.h"
#include "engine/model/module_steps.h"
#include "engine/model/passes.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/pass_ops.h"
#include "engine/step_plan/residency.h"
#include "status.h"

namespace commsched::engine {

// Of sums over micro-batches.
inline constexpr commsched_dtype_t kSumDType = COMMSCHED_F32;

// Element types of what a step keeps and sends.
struct Precision {
  // What the model reads, and what backward adds to.
  commsched_dtype_t parameters = COMMSCHED_F32;
  commsched_dtype_t reduced = COMMSCHED_F32;  // What travels.
};

// What shapes a step.
struct StepSpec {
  uint32_t zero_stage = 0;
  uint32_t micro_batches = 1;
  int32_t world = 1;  // Data-parallel ranks.
  bool clip = false;
  bool scales_loss = false;
  bool check_finite = false;
  bool deterministic = false;
  bool sgd = false;
  uint32_t moments = 2;  // Values that the optimizer keeps per weight.
  // The optimizer's state, masters among it, is in memory only for its op.
  bool offloads = false;

  Precision precision;

  const char* optimizer() const { return sgd ? "sgd" : "adamw"; }
  // Optimizer shards per bucket.
  uint64_t num_shards() const {
    return zero_stage == 0 ? 1 : static_cast<uint64_t>(world);
  }
  // The ranks keep only shards of the reduced gradients.
  bool owned_gradients() const { return zero_stage >= 2; }
  // Master weights are kept beside what the model computes with.
  bool has_masters() const { return precision.parameters != COMMSCHED_F32; }
  // Values of the optimizer's state per weight.
  uint64_t state_values() const { return moments + (has_masters() ? 1 : 0); }
  // Gradients of 16 bits accumulate whole, in memory of fp32; what backward
  // adds to holds those of one micro-batch.
  bool folds(const Bucket& bucket) const {
    return micro_batches > 1 && !bucket.reduced_at_once && has_masters();
  }
  // Backward begins anew in each micro-batch.
  bool begins_anew(const Bucket& bucket) const {
    return bucket.reduced_at_once || folds(bucket);
  }
  // Of the gradients that are to be reduced, before they are converted.
  commsched_dtype_t unreduced(const Bucket& bucket) const {
    return folds(bucket) ? kSumDType : precision.parameters;
  }
  // What travels is a copy.
  bool casts(const Bucket& bucket) const {
    return unreduced(bucket) != precision.reduced;
  }
  // Of the reduced gradients that the optimizer reads.
  commsched_dtype_t reduced(const Bucket& bucket) const {
    return bucket.reduced_at_once ? kSumDType : precision.reduced;
  }
  // Reduced gradients have memory of their own, in which those of several
  // micro-batches can add up.
  bool has_shard(const Bucket& bucket) const {
    return owned_gradients() || bucket.reduced_at_once || casts(bucket) ||
           folds(bucket);
  }
  // What the first reduction leaves is added, too, to become fp32.
  bool adds_first(const Bucket& bucket) const {
    return bucket.reduced_at_once && precision.reduced != kSumDType;
  }
  // What is added to the reduced gradients has memory of its own.
  bool has_summand(const Bucket& bucket) const {
    return bucket.reduced_at_once &&
           (owned_gradients() || casts(bucket) || adds_first(bucket));
  }
  // Gradients have memory only until they are reduced or added, in each
  // micro-batch.
  bool short_lived_gradients(const Bucket& bucket) const {
    return owned_gradients() && begins_anew(bucket);
  }
  // The ranks keep only shards of the parameters, which ops use in buffers that
  // are gathered for them.
  bool gathers(const Bucket& bucket) const {
    return zero_stage == 3 && !bucket.resident;
  }
  // The norm clips, and tells whether all gradients are finite.
  bool needs_norm() const { return clip || scales_loss || check_finite; }
  // How ranks that hold shards agree on the norm. With whole gradients every
  // rank computes it alone.
  bool gathers_block_sums() const {
    return needs_norm() && zero_stage > 0 && deterministic;
  }
  bool reduces_norm() const {
    return needs_norm() && zero_stage > 0 && !deterministic;
  }
  // The learning rates of the ranks travel with the norm, and are compared
  // before a weight is stepped; or in a collective of their own, of which the
  // next step sees the result.
  bool gathers_rates() const {
    return world > 1 && !gathers_block_sums() && !reduces_norm();
  }
};

// Ids of one bucket's buffers and ops; kNoId where the step has none.
struct BucketIds {
  commsched_buffer_id_t parameters = kNoId;  // All elements, unless gathered.
  commsched_buffer_id_t parameter_shard = kNoId;  // If gathered.
  // All elements; short-lived ones by micro-batch.
  std::vector<commsched_buffer_id_t> gradients;
  commsched_buffer_id_t masters = kNoId;      // Of one shard: has_masters().
  commsched_buffer_id_t accumulated = kNoId;  // All elements: folds().
  std::vector<commsched_buffer_id_t> sent;    // By reduction: casts().
  commsched_buffer_id_t shard = kNoId;    // The reduced gradients: has_shard().
  commsched_buffer_id_t summand = kNoId;  // What to add to it: has_summand().
  // Of one shard, moment after moment: m, then v; momentum; or none.
  commsched_buffer_id_t state = kNoId;
  commsched_op_id_t accumulate = kNoId;  // Of the last micro-batch.
  commsched_op_id_t squares = kNoId;
  commsched_op_id_t optimizer = kNoId;
  // Offloaded state: copied into a slot for the optimizer, and out of it.
  uint32_t slot = 0;
  commsched_op_id_t fetch = kNoId;
  commsched_op_id_t store = kNoId;
  commsched_op_id_t first_backward = kNoId;

  // What backward of `micro_batch` adds to.
  commsched_buffer_id_t gradients_in(uint32_t micro_batch) const {
    return gradients.size() == 1 ? gradients.front() : gradients[micro_batch];
  }
  // What adds up to what is reduced after `micro_batch`.
  commsched_buffer_id_t uncast_in(uint32_t micro_batch) const {
    return accumulated != kNoId ? accumulated : gradients_in(micro_batch);
  }
  // What that reduction reads.
  commsched_buffer_id_t unreduced_in(uint32_t micro_batch) const {
    if (sent.empty()) return uncast_in(micro_batch);
    return sent.size() == 1 ? sent.front() : sent[micro_batch];
  }
};

// A gathered bucket during one of its stays.
struct Gathered {
  Stay stay;
  commsched_buffer_id_t buffer = kNoId;
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
//   loss scale: the same, and norm -> backwards of the next step
//   otherwise, or in stage 0: adamw_b of one bucket ->
//               gather_learning_rates -> adamw_b of the next step
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
  // Buckets in the order in which the ops first use them: they are stepped in
  // it, and reduced in the opposite one.
  std::vector<uint32_t> first_use;

  // With a norm. Block sums of this rank's shards, bucket after bucket, and
  // its learning rate if they are gathered; and those of all ranks, rank after
  // rank.
  commsched_buffer_id_t local_sums = kNoId;
  commsched_buffer_id_t all_sums = kNoId;
  // The sum over the ranks, and the learning rate of each.
  commsched_buffer_id_t total = kNoId;
  commsched_buffer_id_t control = kNoId;  // All of a LossScale.
  std::vector<uint64_t> sums_offset;      // By bucket, in local_sums.
  uint64_t local_blocks = 0;              // Of local_sums.
  uint64_t local_count = 0;               // Those, and the learning rate.
  // The learning rate of each rank: gathers_rates().
  commsched_buffer_id_t rates = kNoId;
  uint32_t rate_bucket = kNoId;  // Whose step sends this rank's.
  commsched_op_id_t local_total = kNoId;
  commsched_op_id_t norm = kNoId;
};

// `passes` are those of PassOrder(), each module among them. `stays`: of
// stage 3's gathered buckets, as PlanStays() gives them; each use is covered by
// one. Fails as the graph functions do.
Status BuildStepGraph(const StepSpec& spec, const std::vector<Module>& modules,
                      const Exchanges& exchanges, const Layout& layout,
                      const std::vector<Pass>& passes,
                      const std::vector<Stay>& stays, StepGraph* out_graph);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_BUILD_GRAPH_H_

#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_SPEC_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_SPEC_H_

#include <cstdint>

#include "commsched/engine_kernels.h"
#include "commsched/types.h"
#include "engine/step_plan/layout.h"

namespace commsched::engine {

// The type of sums over micro-batches.
inline constexpr commsched_dtype_t kSumDType = COMMSCHED_F32;

// What the ops of a step hand to each other about the norm and the loss scale.
inline constexpr uint64_t kStateDoubles =
    sizeof(commsched_step_state_t) / sizeof(double);

// Element types of what a step keeps and sends.
struct Precision {
  // What the model reads, and what backward adds to, of parameters that have no
  // dtype of their own.
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
  bool reads_norm = false;  // The caller does.
  // Ranks that hold other parts of the model, this one among them, over which
  // the norm goes, too.
  int32_t norm_members = 1;
  // The sum of the ranks' gradients is divided by this; 0: by `world`.
  double gradient_divisor = 0;
  bool deterministic = false;
  // The optimizer: names of its ops and of its state, which outlive the spec,
  // and how many values it keeps per weight.
  const char* optimizer = "adamw";
  const char* optimizer_state = "adamw_state";
  uint32_t moments = 2;
  uint32_t option_sets = 0;  // Whose values each step is given.
  // Gradients may be ready in the middle of a pass.
  bool gradient_ready = false;
  // A step may have no gradient of a parameter.
  bool absent_gradients = false;
  // A step may be cancelled on all ranks until it is updated.
  bool cancel_all = false;
  // A bucket that is gathered several times lies at one place in the arena.
  bool fixed_addresses = false;
  // Ranks may have another number of forwards in an evaluation.
  bool uneven_evaluations = false;
  // The optimizer's state, masters among it, is in memory only for its op.
  bool offloads = false;
  // Reduced gradients are in memory only for their reduction and for the ops
  // that read them.
  bool offloads_gradients = false;

  Precision precision;

  // Optimizer shards per bucket.
  uint64_t num_shards() const {
    return zero_stage == 0 ? 1 : static_cast<uint64_t>(world);
  }
  // The ranks keep only shards of the reduced gradients.
  bool owned_gradients() const { return zero_stage >= 2; }
  // Master weights are kept beside what the model computes with.
  bool has_masters(const Bucket& bucket) const {
    return !bucket.frozen && bucket.dtype != COMMSCHED_F32;
  }
  // Values of the optimizer's state per weight.
  uint64_t state_values(const Bucket& bucket) const {
    if (bucket.frozen) return 0;
    return moments + (has_masters(bucket) ? 1 : 0);
  }
  uint64_t state_count(const Bucket& bucket) const {
    return state_values(bucket) * (bucket.count / num_shards());
  }
  // Where the values of moment `moment` begin in a rank's state of `bucket`.
  uint64_t moment_begin(const Bucket& bucket, uint64_t moment) const {
    const uint64_t masters = offloads && has_masters(bucket) ? 1 : 0;
    return (masters + moment) * (bucket.count / num_shards());
  }
  // Gradients of 16 bits accumulate whole, in memory of fp32; what backward
  // adds to holds those of one micro-batch.
  bool folds(const Bucket& bucket) const {
    return micro_batches > 1 && !bucket.reduced_at_once && has_masters(bucket);
  }
  // Backward begins anew in each micro-batch.
  bool begins_anew(const Bucket& bucket) const {
    return bucket.reduced_at_once || folds(bucket);
  }
  // The type of the gradients that are to be reduced, before they are
  // converted.
  commsched_dtype_t unreduced(const Bucket& bucket) const {
    return folds(bucket) ? kSumDType : bucket.dtype;
  }
  // What travels is a copy.
  bool casts(const Bucket& bucket) const {
    return !bucket.frozen && unreduced(bucket) != precision.reduced;
  }
  // The type of the reduced gradients that the optimizer reads.
  commsched_dtype_t reduced(const Bucket& bucket) const {
    return bucket.reduced_at_once ? kSumDType : precision.reduced;
  }
  // Those of the bucket leave memory: whole, or as a sum to which those of each
  // micro-batch are added.
  bool offloads_gradients_of(const Bucket& bucket) const {
    return offloads_gradients && owned_gradients() && !bucket.frozen;
  }
  // What a rank's shard of those takes of a slot, in elements of what travels.
  uint64_t slot_count(const Bucket& bucket) const {
    return bucket.count / num_shards() * SizeOf(reduced(bucket)) /
           SizeOf(precision.reduced);
  }
  // Reduced gradients have memory of their own, in which those of several
  // micro-batches can add up.
  bool has_shard(const Bucket& bucket) const {
    if (offloads_gradients_of(bucket)) return false;
    return owned_gradients() || bucket.reduced_at_once || casts(bucket) ||
           folds(bucket);
  }
  // What the first reduction leaves is added, too, to become fp32.
  bool adds_first(const Bucket& bucket) const {
    return bucket.reduced_at_once && precision.reduced != kSumDType;
  }
  // What is added to the reduced gradients has memory of its own; beside
  // offloaded ones only until it is added.
  bool has_summand(const Bucket& bucket) const {
    return bucket.reduced_at_once &&
           (gradients_in_arena(bucket) || casts(bucket) || adds_first(bucket));
  }
  // What backward adds to has memory only while the step needs it.
  bool gradients_in_arena(const Bucket& bucket) const {
    return owned_gradients() || (bucket.interleaved && begins_anew(bucket));
  }
  // What backward adds to has memory in each micro-batch, and there only until
  // it is reduced or added.
  bool short_lived_gradients(const Bucket& bucket) const {
    return gradients_in_arena(bucket) && begins_anew(bucket);
  }
  // The ranks keep only shards of the parameters, which ops use in buffers that
  // are gathered for them.
  bool gathers(const Bucket& bucket) const {
    return zero_stage == 3 && !bucket.resident;
  }
  // The mean of the ranks' gradients times this is what they step with: exactly
  // 1 where that is the mean.
  double gradient_factor() const {
    return gradient_divisor == 0 ? 1 : world / gradient_divisor;
  }
  // The norm clips, and tells whether all gradients are finite.
  bool needs_norm() const {
    return clip || scales_loss || check_finite || reads_norm;
  }
  // What each rank tells the others of its learning rate, and of other values
  // that it steps with: so many numbers.
  uint64_t agreed_values() const { return 1 + 2 * uint64_t{option_sets}; }
  // How ranks that hold shards agree on the norm. With whole gradients every
  // rank computes it alone.
  bool gathers_block_sums() const {
    return needs_norm() && zero_stage > 0 && deterministic;
  }
  bool reduces_norm() const {
    return needs_norm() && zero_stage > 0 && !deterministic;
  }
  // Then the sums of those that hold the other parts are gathered, and with
  // each the values that its rank steps with.
  bool gathers_parts() const { return needs_norm() && norm_members > 1; }
  uint64_t part_count() const { return 1 + agreed_values(); }
  // At the end of a step the ranks tell each other which gradients are absent,
  // and whether one of them has cancelled it: so many numbers, the last of
  // which is the latter.
  bool has_flags() const { return absent_gradients || cancel_all; }
  uint64_t num_flags(uint64_t num_parameters) const {
    return (absent_gradients ? num_parameters : 0) + 1;
  }
  bool uses_norm_group() const { return norm_members > 1; }
  // The learning rates of the ranks travel with the norm, and are compared
  // before a weight is stepped; or in a collective of their own, of which the
  // next step sees the result.
  bool gathers_rates() const {
    return world > 1 && !gathers_block_sums() && !reduces_norm();
  }
  // So it is among the ranks that hold other parts of the model.
  bool gathers_part_rates() const { return norm_members > 1 && !needs_norm(); }
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_SPEC_H_

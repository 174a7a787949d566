/// What an engine says of itself: memory, buckets, costs, the loss scale, its
/// plan. Conventions and errors: engine.h.
#ifndef COMMSCHED_ENGINE_INFO_H_
#define COMMSCHED_ENGINE_INFO_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine_types.h"
#include "commsched/export.h"
#include "commsched/plan.h"
#include "commsched/session.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_engine_loss_scale_info {
  uint64_t struct_size;
  double scale;         ///< Of the next step.
  uint64_t good_steps;  ///< In a row, since the scale was last changed.
  uint64_t
      skipped_steps;  ///< Of all steps, those before a checkpoint included.
} commsched_engine_loss_scale_info_t;

static inline commsched_engine_loss_scale_info_t
commsched_engine_loss_scale_info_init(void) {
  commsched_engine_loss_scale_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Fills `out_info`, made by commsched_engine_loss_scale_info_init(), before
/// the first step or after a drain.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, `struct_size` not set
///            FAILED_PRECONDITION  not drained since the last step
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_get_loss_scale(const commsched_engine_t* engine,
                                commsched_engine_loss_scale_info_t* out_info);

typedef struct commsched_engine_info {
  uint64_t struct_size;
  uint64_t num_parameters;  ///< Elements.
  uint64_t num_buckets;
  uint64_t parameter_bytes;  ///< Per rank, with padding.
  uint64_t gradient_bytes;   ///< Per rank at the peak, the arena included.
  uint64_t optimizer_bytes;  ///< Per rank; with master weights beside the copy.
  /// What the plan placed: gradient buckets and packing memory, in stage 3 also
  /// gathered parameters, for which it is not part of the other figures.
  uint64_t arena_bytes;
  uint64_t num_ops;      ///< Of the graph.
  uint64_t state_bytes;  ///< Per rank at the peak: all of this together.
  /// Gradient buckets that accumulate over micro-batches: at most
  /// `accumulate_bytes`, and part of `gradient_bytes`; in stage 3 of
  /// `arena_bytes`. 0 with one micro-batch.
  uint64_t accumulated_bytes;
  /// In `optimizer_pool`, and memory for what is on its way, which is part of
  /// `optimizer_bytes`.
  uint64_t offloaded_bytes, staging_bytes;
  /// Of all steps, exact after a drain: bytes copied to and from the pools, how
  /// long that took, and how long the optimizer had to wait for state and
  /// gradients that had not arrived.
  uint64_t copied_bytes;
  int64_t copy_ns, copy_exposed_ns;
  uint64_t norm_bytes;  ///< Of what the norm is computed from; 0 without one.
  /// Steps of all, those before a checkpoint included, and of the last ones in
  /// a row, whose gradients were not finite: they changed nothing
  /// (`max_skipped_steps`).
  uint64_t skipped_steps, skipped_in_row;
  /// What the stage comes to by its definition, per rank and with padding:
  /// parameters, gradients and the optimizer's state in memory, each whole or a
  /// shard. `state_bytes` is more by the arena, by what else micro-batches and
  /// dtypes take, and by `norm_bytes`.
  uint64_t due_bytes;
  /// Where buckets are merged or cut by cost (`bucket_merge`): how many there
  /// would be with `bucket_bytes`, and the steps that are predicted with these
  /// and with the `num_buckets` that were chosen. Else 0.
  uint64_t given_buckets;
  int64_t given_step_ns, step_ns;
  /// In `gradient_pool`, and memory for what is on its way, which is part of
  /// `gradient_bytes`.
  uint64_t offloaded_gradient_bytes, gradient_staging_bytes;
} commsched_engine_info_t;

static inline commsched_engine_info_t commsched_engine_info_init(void) {
  commsched_engine_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Fills `out_info`, made by commsched_engine_info_init().
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, `struct_size` not set
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_get_info(
    const commsched_engine_t* engine, commsched_engine_info_t* out_info);

/// Fills `out_info`, made by commsched_engine_bucket_info_init(), with bucket
/// `bucket`, counted from 0 in the order of first use. Its collectives are
/// called `reduce_scatter.<bucket>` (stage 0: `all_reduce.<bucket>`), and with
/// `.<micro-batch>` where it is reduced in each.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, `struct_size` not set
///            NOT_FOUND            no such bucket
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_get_bucket_info(
    const commsched_engine_t* engine, uint64_t bucket,
    commsched_engine_bucket_info_t* out_info);

/// What each op of the graph costs on this rank, in thread-CPU ns per step:
/// what commsched_cost_profile_t wants. A compute op: the least of the first
/// `measure_steps` steps. A collective: the mean of its copies and reductions
/// over all steps.
///
/// Shape:     `out_ns` holds `num_ops` values, by op id.
/// Threads:   one per engine at a time, after a drain.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, another number of ops than the graph's
///            FAILED_PRECONDITION  not drained, `measure_steps` is 0, or no
///                                 step has run
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_op_costs(
    const commsched_engine_t* engine, int64_t* out_ns, uint64_t num_ops);

/// Returns the engine's plan: for explain and predict.
///
/// Ownership: the engine's, for its life.
/// Threads:   one per engine at a time.
/// Since:     0.1
COMMSCHED_API commsched_plan_t* commsched_engine_plan(
    commsched_engine_t* engine);

/// Returns the engine's session: for counters and abort. NULL
/// while an order is recorded.
///
/// Ownership: the engine's, for its life.
/// Threads:   one per engine at a time.
/// Since:     0.1
COMMSCHED_API commsched_session_t* commsched_engine_session(
    commsched_engine_t* engine);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_INFO_H_

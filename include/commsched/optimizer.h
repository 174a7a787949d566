/// Optimizers of the reference engine: each is a table that says what it keeps
/// per weight and steps one bucket. AdamW and SGD come with the library; any
/// other one is a table of the caller's. Library: libcommsched_engine.
#ifndef COMMSCHED_OPTIMIZER_H_
#define COMMSCHED_OPTIMIZER_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine_kernels.h"
#include "commsched/engine_types.h"
#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The most values that an optimizer keeps per weight, and the most settings.
#define COMMSCHED_OPTIMIZER_MAX_STATE 8
#define COMMSCHED_OPTIMIZER_MAX_SETTINGS 8

/// The part of one parameter that lies in this rank's shard of a bucket: what
/// `step` treats as a unit. Plain data that is passed by pointer; never grows.
typedef struct commsched_optimizer_segment {
  commsched_parameter_id_t parameter;
  uint32_t num_dims;      ///< Length of `dims`.
  const uint64_t* dims;   ///< The shape of all of the parameter.
  uint64_t begin;         ///< Elements of the shard before it.
  uint64_t count;         ///< Elements; all of the parameter's, or some.
  uint64_t in_parameter;  ///< Elements of the parameter before it.
  float lr;               ///< The learning rate of this step.
  float decay;            ///< The weight decay of this parameter.
  float beta1, beta2;     ///< Those of the table.
  /// Scale of the gradients, AdamW's corrections for `beta1` and `beta2`, and
  /// whether the step is skipped, of all parameters or of this one, whose
  /// gradient is absent. On a device it lies in the device's memory.
  const commsched_step_control_t* control;
} commsched_optimizer_segment_t;

/// This rank's shard of one bucket. All addresses are of the memory on which
/// the rank computes: of a device if it computes there. Plain data that is
/// passed by pointer; never grows.
typedef struct commsched_optimizer_bucket {
  uint32_t bucket;        ///< In the order of commsched_engine_get_bucket_info.
  uint32_t num_segments;  ///< Length of `segments`; may be 0.
  const commsched_optimizer_segment_t* segments;
  uint64_t shard_count;   ///< Elements of the shard, with padding.
  float* masters;         ///< The weights in fp32, to be updated in place.
  const void* gradients;  ///< Reduced, of `gradient_dtype`; not scaled yet.
  void* copy;             ///< Receives the weights, rounded to `copy_dtype`;
                          ///< NULL if the model computes with `masters`.
  float* state;           ///< State value k begins at k * `shard_count`.
  commsched_dtype_t gradient_dtype, copy_dtype;
  const void* kernels;  ///< The engine's own, for tables of the library.
} commsched_optimizer_bucket_t;

/// A constant of an optimizer. Never grows.
typedef struct commsched_optimizer_setting {
  const char* name;  ///< "epsilon"
  float value;
} commsched_optimizer_setting_t;

/// An optimizer. The engine copies the table and all names in it.
typedef struct commsched_optimizer_table {
  uint64_t struct_size;
  /// Of its ops and its state, and in messages: "adamw". Letters, digits, '_',
  /// '-' and '.', at least one of them; so are the names of its state.
  const char* name;
  /// fp32 values per weight that it keeps from step to step, all 0 before the
  /// first one; and what checkpoints call each, such as "adamw.m".
  uint32_t state_values;
  /// One of the two is 1. Element by element: what happens to a weight depends
  /// on that weight, its gradient and its state alone, so that a shard may be
  /// cut anywhere. Whole tensors: `step` needs all of a parameter at once,
  /// so that shards are padded and end between parameters: a bucket takes as
  /// many times its largest parameter as there are shards, at least.
  uint32_t element_wise, whole_tensors;
  const char* state_names[COMMSCHED_OPTIMIZER_MAX_STATE];
  /// Decay rates of moments, for which the engine computes the corrections
  /// 1 - beta^t; 0: none.
  float beta1, beta2;
  /// Other constants. They, the betas and the name must be the same on all
  /// ranks, which is compared in commsched_engine_create(). Those without a
  /// name are none.
  commsched_optimizer_setting_t settings[COMMSCHED_OPTIMIZER_MAX_SETTINGS];
  /// Checks the table when a step plan is made with it; NULL: nothing to
  /// check. The message of a failure is that of commsched_set_last_error().
  commsched_status_t (*check)(const struct commsched_optimizer_table* self);
  /// Enqueues the step of a bucket on `stream`, the engine's compute stream, or
  /// does it on the calling thread (COMMSCHED_STREAM_CALLER). Reads gradients
  /// times `control->gradient_scale`, updates masters and state, and writes the
  /// copy if there is one. Must change nothing of a segment whose
  /// `control->skip` is not 0. `bucket` lives during the call only. Anything
  /// but OK ends the training; the message is that of
  /// commsched_set_last_error(). `self` is the engine's copy of the table.
  commsched_status_t (*step)(const struct commsched_optimizer_table* self,
                             commsched_stream_t stream,
                             const commsched_optimizer_bucket_t* bucket);
  /// The caller's. What it points to must outlive the engine.
  void* user;
} commsched_optimizer_table_t;

static inline commsched_optimizer_table_t commsched_optimizer_table_init(void) {
  commsched_optimizer_table_t table;
  memset(&table, 0, sizeof(table));
  table.struct_size = sizeof(table);
  return table;
}

/// Returns the table of AdamW as commsched_adamw_args_t states it, with state
/// "adamw.m" and "adamw.v". commsched_step_plan_build()
/// checks that betas are in [0, 1) and
/// `epsilon` is not negative. Another table's `step` may call that of this one
/// with some of the segments, if its first two state values are the moments.
///
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API commsched_optimizer_table_t commsched_adamw(float beta1,
                                                          float beta2,
                                                          float epsilon);

/// Returns the table of SGD as commsched_sgd_args_t states it, with state
/// "sgd.momentum" unless `momentum` is 0. `nesterov` not 0: with Nesterov's
/// momentum. commsched_step_plan_build()
/// checks that `momentum` is in [0, 1), and not 0 with
/// Nesterov's.
///
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API commsched_optimizer_table_t commsched_sgd(float momentum,
                                                        uint32_t nesterov);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_OPTIMIZER_H_

/// The reference engine: ZeRO-0/1/2 data parallelism on the public C ABI.
///
/// The caller registers modules and parameters in first-use order and calls
/// begin/end around each module's forward and backward; the engine lays
/// parameters out in buckets, builds the graph, plans it and runs it. Library:
/// libcommsched_engine.
///
/// A step, per rank:
///   step_begin
///   for each micro-batch: forward_begin/end per module, in order;
///                         backward_begin/end per module, in reverse
///   optimizer_step   (clip, AdamW; gathers begin bucket by bucket)
///   step_end
/// Parameters gathered for step t+1 arrive under the rest of the optimizer and
/// the next forward: forward_begin(m) waits for the buckets of m only.
#ifndef COMMSCHED_ENGINE_H_
#define COMMSCHED_ENGINE_H_

#include <stdint.h>
#include <string.h>

#include "commsched/commsched.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_engine commsched_engine_t;

/// Ids are dense from 0 in the order of registration.
typedef uint32_t commsched_module_id_t;
typedef uint32_t commsched_parameter_id_t;

/// AdamW on `count` elements of one parameter's shard. `decay` is the weight
/// decay of this parameter; bias corrections are folded in by the caller.
typedef struct commsched_adamw_args {
  float* master;  ///< fp32 weights, updated in place.
  float* m;       ///< First moment.
  float* v;       ///< Second moment.
  const float* gradient;
  uint64_t count;
  float lr, beta1, beta2, epsilon, decay;
  float correction1, correction2;  ///< 1 - beta^t
  float gradient_scale;            ///< Clipping factor.
} commsched_adamw_args_t;

/// The kernels the engine runs on the caller's stream. NULL entries: CPU ones.
/// Kernels must give the same bits for an element wherever a shard is cut.
typedef struct commsched_engine_kernels {
  uint64_t struct_size;
  void* user;
  void (*adamw)(void* user, const commsched_adamw_args_t* args);
  /// Sums of squares of consecutive blocks of 256 elements, the last may be
  /// shorter: out_sums[ceil(count/256)].
  void (*block_squares)(void* user, const float* values, uint64_t count,
                        double* out_sums);
  void (*zero)(void* user, float* values, uint64_t count);
} commsched_engine_kernels_t;

typedef struct commsched_engine_desc {
  uint64_t struct_size;
  commsched_context_t* context;
  commsched_group_t* group;       ///< Data-parallel ranks.
  uint32_t zero_stage;            ///< 0: all-reduce; 1, 2: sharded optimizer.
  uint32_t micro_batches;         ///< 0 means 1.
  uint64_t bucket_bytes;          ///< 0: 25 MiB.
  commsched_plan_options_t plan;  ///< Window, schedule, deterministic, ...
  float beta1, beta2;             ///< 0, 0: 0.9, 0.95.
  float epsilon;                  ///< 0: 1e-8.
  float weight_decay;             ///< For parameters of two or more dimensions.
  float clip_norm;                ///< 0: no clipping.
  uint32_t reserved;
  const commsched_engine_kernels_t* kernels;  ///< NULL: all CPU. Copied.
  commsched_trace_t* trace;                   ///< NULL: record nothing.
} commsched_engine_desc_t;

static inline commsched_engine_desc_t commsched_engine_desc_init(void) {
  commsched_engine_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  desc.plan = commsched_plan_options_init();
  return desc;
}

/// Creates an engine without modules. Local.
COMMSCHED_API commsched_status_t commsched_engine_create(
    const commsched_engine_desc_t* desc, commsched_engine_t** out_engine);
COMMSCHED_API void commsched_engine_destroy(commsched_engine_t* engine);

/// Adds a module; first-use order. `flops_*`: cost hints per micro-batch.
COMMSCHED_API commsched_status_t commsched_engine_add_module(
    commsched_engine_t* engine, const char* name, double forward_flops,
    double backward_flops, commsched_module_id_t* out_module);

/// Adds a parameter owned by `module`, of `num_dims` dimensions.
COMMSCHED_API commsched_status_t commsched_engine_add_parameter(
    commsched_engine_t* engine, commsched_module_id_t module, const char* name,
    const uint64_t* dims, uint32_t num_dims,
    commsched_parameter_id_t* out_parameter);

/// `module` also uses `parameter`, which an earlier module owns (tied weights).
COMMSCHED_API commsched_status_t commsched_engine_use_parameter(
    commsched_engine_t* engine, commsched_module_id_t module,
    commsched_parameter_id_t parameter);

/// Lays out, plans and binds. Collective: blocks until all ranks have called.
/// Nothing can be added afterwards.
COMMSCHED_API commsched_status_t
commsched_engine_build(commsched_engine_t* engine);

/// Sets a parameter's values before the first step, or after a drain. Every
/// rank must give the same values. `count` elements, row-major.
COMMSCHED_API commsched_status_t commsched_engine_set_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const float* values, uint64_t count);

/// Reads a parameter's fp32 master values after a drain. Collective for stages
/// 1 and 2 only in that all ranks must have drained the same step.
COMMSCHED_API commsched_status_t commsched_engine_get_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    float* out_values, uint64_t count);

/// Addresses of a parameter's values and gradient, fixed after build. Values
/// may be read within forward and backward of modules that use the parameter;
/// the gradient may be added to (+=) within backward of those.
COMMSCHED_API commsched_status_t commsched_engine_parameter_address(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const float** out_values, float** out_gradient);

/// The step. All on one thread per rank. Errors are those of the session, and
/// FAILED_PRECONDITION for a call out of the order above.
COMMSCHED_API commsched_status_t
commsched_engine_step_begin(commsched_engine_t* engine);
COMMSCHED_API commsched_status_t commsched_engine_forward_begin(
    commsched_engine_t* engine, commsched_module_id_t module,
    uint32_t micro_batch);
COMMSCHED_API commsched_status_t commsched_engine_forward_end(
    commsched_engine_t* engine, commsched_module_id_t module,
    uint32_t micro_batch);
COMMSCHED_API commsched_status_t commsched_engine_backward_begin(
    commsched_engine_t* engine, commsched_module_id_t module,
    uint32_t micro_batch);
COMMSCHED_API commsched_status_t commsched_engine_backward_end(
    commsched_engine_t* engine, commsched_module_id_t module,
    uint32_t micro_batch);
/// Clips by global norm and steps AdamW with `lr`, first-needed bucket first.
COMMSCHED_API commsched_status_t
commsched_engine_optimizer_step(commsched_engine_t* engine, float lr);
COMMSCHED_API commsched_status_t
commsched_engine_step_end(commsched_engine_t* engine);

/// Waits until all parameters of the last step have arrived: before evaluation,
/// checkpoints and host reads.
COMMSCHED_API commsched_status_t
commsched_engine_drain(commsched_engine_t* engine);

/// Global gradient norm of the last step, before clipping.
COMMSCHED_API commsched_status_t
commsched_engine_gradient_norm(commsched_engine_t* engine, double* out_norm);

typedef struct commsched_engine_info {
  uint64_t struct_size;
  uint64_t num_parameters;  ///< Elements.
  uint64_t num_buckets;
  uint64_t parameter_bytes;  ///< Per rank, with padding.
  uint64_t gradient_bytes;   ///< Per rank at the peak.
  uint64_t optimizer_bytes;  ///< Per rank.
  uint64_t arena_bytes;
} commsched_engine_info_t;

static inline commsched_engine_info_t commsched_engine_info_init(void) {
  commsched_engine_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

COMMSCHED_API commsched_status_t commsched_engine_get_info(
    const commsched_engine_t* engine, commsched_engine_info_t* out_info);

/// The engine's plan and session, borrowed: for explain, predict, counters.
COMMSCHED_API commsched_plan_t* commsched_engine_plan(
    commsched_engine_t* engine);
COMMSCHED_API commsched_session_t* commsched_engine_session(
    commsched_engine_t* engine);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_H_

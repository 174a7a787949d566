/// What the headers of the engine have in common, and the values that a step is
/// updated with. Include engine.h.
#ifndef COMMSCHED_ENGINE_TYPES_H_
#define COMMSCHED_ENGINE_TYPES_H_

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One rank's model: layout, graph, plan and session.
typedef struct commsched_engine commsched_engine_t;

/// Ids are dense from 0 in the order of registration.
typedef uint32_t commsched_module_id_t;
typedef uint32_t commsched_parameter_id_t;

/// What the parameters of one option set are stepped with. Never grows.
typedef struct commsched_option_values {
  float lr_scale;      ///< By which `lr` is multiplied.
  float decay;         ///< The weight decay of all of its parameters.
  float beta1, beta2;  ///< 0: those of the optimizer's table.
} commsched_option_values_t;

/// Returns a learning rate as it is, no decay, and the betas of the table.
static inline commsched_option_values_t commsched_option_values_init(void) {
  commsched_option_values_t values;
  memset(&values, 0, sizeof(values));
  values.lr_scale = 1;
  return values;
}

/// What a step is updated with. All of it must be the same on all members of
/// the engine's group, and of `norm_group`.
typedef struct commsched_engine_update_args {
  uint64_t struct_size;
  float lr;           ///< The learning rate.
  float clip_norm;    ///< 0: that of the engine's description.
  uint32_t num_sets;  ///< 0, or `option_sets` of the step plan.
  /// By option set. NULL: `lr` for all parameters, `weight_decay` of the
  /// description for those of two or more dimensions, the table's betas.
  const commsched_option_values_t* sets;
} commsched_engine_update_args_t;

static inline commsched_engine_update_args_t commsched_engine_update_args_init(
    void) {
  commsched_engine_update_args_t args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  return args;
}

/// What the layout and the plan have made of one bucket.
typedef struct commsched_engine_bucket_info {
  uint64_t struct_size;
  uint64_t count;           ///< Elements, with padding.
  uint64_t num_parameters;  ///< All of each.
  /// Of gradients, per step: 1, or `micro_batches`; 0 of a frozen bucket.
  uint64_t num_reductions;
  /// Of parameters, per step; 0 in stage 0, and of a frozen bucket below 3.
  uint64_t num_gathers;
  uint32_t dtype;   ///< commsched_dtype_t, of all its parameters.
  uint32_t frozen;  ///< 1: none of them is trained; 0: all are.
} commsched_engine_bucket_info_t;

static inline commsched_engine_bucket_info_t commsched_engine_bucket_info_init(
    void) {
  commsched_engine_bucket_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_TYPES_H_

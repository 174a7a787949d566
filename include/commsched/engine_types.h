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

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_TYPES_H_

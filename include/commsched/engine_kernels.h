/// The kernels of the reference engine: what a program can replace, such as by
/// those of its device. Library: libcommsched_engine.
#ifndef COMMSCHED_ENGINE_KERNELS_H_
#define COMMSCHED_ENGINE_KERNELS_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What a step of the optimizer is done with. Ops of the step write it, and
/// kernels read it when they run, so that no host has to know. Never grows.
typedef struct commsched_step_control {
  double gradient_scale;  ///< For clipping, and to take the loss scale out.
  /// AdamW's 1 - beta^t, where t counts steps that were not skipped.
  double correction1, correction2;
  double skip;  ///< Not 0: gradients are not finite; kernels change nothing.
} commsched_step_control_t;

/// AdamW on `count` elements of one parameter's shard. `decay` is the weight
/// decay of this parameter. With g the gradient, scaled, and corrections and
/// scale of `control`, all in fp32:
///   m      = beta1 * m + (1 - beta1) * g
///   v      = beta2 * v + (1 - beta2) * g * g
///   weight = (1 - lr * decay) * weight
///            - lr * (m / correction1) / (sqrt(v / correction2) + epsilon)
/// As PyTorch's AdamW: the decay is not part of the gradient.
/// Plain data that is passed by pointer; never grows.
typedef struct commsched_adamw_args {
  float* master;         ///< fp32 weights, updated in place.
  float* m;              ///< First moment.
  float* v;              ///< Second moment.
  const void* gradient;  ///< Of `gradient_dtype`.
  void* copy;  ///< Receives the weights, rounded to `copy_dtype`; NULL
               ///< if the model computes with `master`.
  uint64_t count;
  commsched_dtype_t gradient_dtype, copy_dtype;
  float lr, beta1, beta2, epsilon, decay;
  const commsched_step_control_t* control;
} commsched_adamw_args_t;

/// SGD on `count` elements of one parameter's shard. The gradient g is scaled,
/// and `decay` times the weight is added to it; then the momentum becomes
/// momentum * itself + g, and the weight goes down by lr times that, with
/// Nesterov's by lr * (g + momentum * it). As PyTorch's SGD without dampening.
/// Plain data that is passed by pointer; never grows.
typedef struct commsched_sgd_args {
  float* master;         ///< fp32 weights, updated in place.
  float* velocity;       ///< What momentum adds up; NULL if `momentum` is 0.
  const void* gradient;  ///< Of `gradient_dtype`.
  void* copy;            ///< As of commsched_adamw_args_t.
  uint64_t count;
  commsched_dtype_t gradient_dtype, copy_dtype;
  float lr, momentum, decay;
  uint32_t nesterov;
  const commsched_step_control_t* control;
} commsched_sgd_args_t;

/// The kernels the engine runs on the caller's stream. NULL entries: CPU ones.
/// Kernels must give the same bits for an element wherever a shard is cut. They
/// compute in fp32 and round to the nearest, ties to even. Each dtype is
/// COMMSCHED_F32, _F16 or _BF16.
typedef struct commsched_engine_kernels {
  uint64_t struct_size;
  void* user;
  void (*adamw)(void* user, const commsched_adamw_args_t* args);
  /// Sums of squares of consecutive blocks of 256 elements, the last may be
  /// shorter: out_sums[ceil(count/256)].
  void (*block_squares)(void* user, const void* values, commsched_dtype_t dtype,
                        uint64_t count, double* out_sums);
  void (*zero)(void* user, void* memory, uint64_t bytes);
  /// into[i] += values[i]; they do not overlap.
  void (*add)(void* user, void* into, commsched_dtype_t into_dtype,
              const void* values, commsched_dtype_t dtype, uint64_t count);
  void (*sgd)(void* user, const commsched_sgd_args_t* args);
  /// into[i] = values[i]; they do not overlap.
  void (*convert)(void* user, void* into, commsched_dtype_t into_dtype,
                  const void* values, commsched_dtype_t dtype, uint64_t count);
} commsched_engine_kernels_t;

static inline commsched_engine_kernels_t commsched_engine_kernels_init(void) {
  commsched_engine_kernels_t kernels;
  memset(&kernels, 0, sizeof(kernels));
  kernels.struct_size = sizeof(kernels);
  return kernels;
}

/// Returns the kernels that an entry of NULL stands for, `user` NULL: to wrap
/// them, or to convert the elements of the 16-bit types.
///
/// Threads:   any, as the kernels.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API commsched_engine_kernels_t commsched_engine_cpu_kernels(void);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_KERNELS_H_

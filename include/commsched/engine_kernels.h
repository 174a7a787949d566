/// The kernels of the reference engine: what a program can replace, such as by
/// those of its device. Library: libcommsched_engine.
#ifndef COMMSCHED_ENGINE_KERNELS_H_
#define COMMSCHED_ENGINE_KERNELS_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/stream.h"
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

/// What of a step's decision a later step, and the host, needs. Numbers of one
/// type, so that they are one buffer of the device. Never grows.
typedef struct commsched_step_state {
  commsched_step_control_t control;
  double scale;           ///< Of the loss; 1 where it is not scaled.
  double good_steps;      ///< In a row, since the scale was last changed.
  double skipped_steps;   ///< In all.
  double skipped_in_row;  ///< Up to the last step.
  double norm;            ///< Of the gradients, with the loss scale taken out.
} commsched_step_state_t;

/// `count` consecutive values from `begin` on. Never grows.
typedef struct commsched_run {
  uint64_t begin, count;
} commsched_run_t;

/// out[i], for i below `count`: the sum of the values of the runs
/// first_run[i] to first_run[i + 1] - 1, added one by one in that order to 0.
/// `first_run` has `count` + 1 entries. Plain data that is passed by pointer;
/// never grows.
typedef struct commsched_sum_runs_args {
  const double* values;
  const commsched_run_t* runs;
  const uint64_t* first_run;
  double* out;
  uint64_t count;
} commsched_sum_runs_args_t;

/// Ends what the optimizer needs to know of a step. With S the sum of `sums`,
/// in their order, and R its root: if S is negative, a rank has cancelled the
/// step, which is skipped and counted so, and nothing else changes. Otherwise
/// the norm is R * factor / scale, and unless R is finite the step is skipped.
/// The gradient scale is factor / scale, times clip_norm / (norm + 1e-6) if
/// that is less than 1; a skipped step halves the scale, and `window` good ones
/// in a row double it, from 1 to 2^24. Corrections are of step - skipped_steps.
/// Plain data that is passed by pointer; never grows.
typedef struct commsched_decide_args {
  commsched_step_state_t* state;
  const double* sums;  ///< NULL: no norm; only the corrections change.
  uint64_t count;
  double clip_norm;  ///< 0: none.
  double beta1, beta2;
  double step;    ///< This one; counted from 1.
  double window;  ///< 0: the scale stays.
  /// Of skipped steps: once there are so many, nothing but the norm changes any
  /// more, and every step is skipped.
  double max_skipped_in_row;
  /// By which the mean of the gradients over the ranks is multiplied
  /// (`gradient_divisor` of the step plan). 0: 1, the mean itself.
  double factor;
} commsched_decide_args_t;

/// The kernels of the engine, and how its memory is reached. Each enqueues on
/// `stream`, the engine's compute stream, and returns; on the calling thread
/// (COMMSCHED_STREAM_CALLER) it does its work. NULL entries: those of the
/// processor, or of CUDA for ranks that compute there. Anything but OK fails
/// the call of the engine; the message is that of commsched_set_last_error().
/// Arguments that are passed by pointer live during the call only.
///
/// Kernels must give the same bits for an element wherever a shard is cut. They
/// compute in fp32 and round to the nearest, ties to even. Each dtype is
/// COMMSCHED_F32, _F16 or _BF16.
typedef struct commsched_engine_kernels {
  uint64_t struct_size;
  void* user;
  commsched_status_t (*adamw)(void* user, commsched_stream_t stream,
                              const commsched_adamw_args_t* args);
  /// Sums of squares of consecutive blocks of 256 elements, the last may be
  /// shorter: out_sums[ceil(count/256)].
  commsched_status_t (*block_squares)(void* user, commsched_stream_t stream,
                                      const void* values,
                                      commsched_dtype_t dtype, uint64_t count,
                                      double* out_sums);
  commsched_status_t (*zero)(void* user, commsched_stream_t stream,
                             void* memory, uint64_t bytes);
  /// into[i] += values[i]; they do not overlap.
  commsched_status_t (*add)(void* user, commsched_stream_t stream, void* into,
                            commsched_dtype_t into_dtype, const void* values,
                            commsched_dtype_t dtype, uint64_t count);
  commsched_status_t (*sgd)(void* user, commsched_stream_t stream,
                            const commsched_sgd_args_t* args);
  /// into[i] = values[i]; they do not overlap.
  commsched_status_t (*convert)(void* user, commsched_stream_t stream,
                                void* into, commsched_dtype_t into_dtype,
                                const void* values, commsched_dtype_t dtype,
                                uint64_t count);
  commsched_status_t (*sum_runs)(void* user, commsched_stream_t stream,
                                 const commsched_sum_runs_args_t* args);
  commsched_status_t (*decide)(void* user, commsched_stream_t stream,
                               const commsched_decide_args_t* args);
  /// values[i] = value.
  commsched_status_t (*fill)(void* user, commsched_stream_t stream,
                             double* values, double value, uint64_t count);
  /// Copies; each side may be the host's memory or the engine's. What is on the
  /// host has been read when the call returns, and is written when
  /// `synchronize` has returned.
  commsched_status_t (*copy)(void* user, commsched_stream_t stream, void* into,
                             const void* from, uint64_t bytes);
  /// Waits for what is enqueued.
  commsched_status_t (*synchronize)(void* user, commsched_stream_t stream);
} commsched_engine_kernels_t;

static inline commsched_engine_kernels_t commsched_engine_kernels_init(void) {
  commsched_engine_kernels_t kernels;
  memset(&kernels, 0, sizeof(kernels));
  kernels.struct_size = sizeof(kernels);
  return kernels;
}

/// Returns the kernels that an entry of NULL stands for on the host, `user`
/// NULL: to wrap them, or to convert the elements of the 16-bit types.
///
/// Threads:   any, as the kernels.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API commsched_engine_kernels_t commsched_engine_cpu_kernels(void);

/// Where the engine's memory comes from: parameters, gradients, the optimizer's
/// state, norms, the arenas of its sessions, what a forward whose order is
/// recorded gathers. All of it is there before the first step. Not a saver's
/// copy, which is the C library's. NULL entries: the C library's, or
/// cudaMalloc() and its like. `allocate` and `release` are given together or
/// not at all, and so are the other two.
typedef struct commsched_engine_memory {
  uint64_t struct_size;
  void* user;
  /// `bytes`, not 0, on the rank's device, aligned to 256.
  commsched_status_t (*allocate)(void* user, uint64_t bytes,
                                 void** out_address);
  /// Nothing uses it any more.
  void (*release)(void* user, void* address, uint64_t bytes);
  /// Of the host, for what the device tells it: to be copied to without waiting
  /// (cudaHostAlloc()). Asked for where ranks compute on a device.
  commsched_status_t (*allocate_host)(void* user, uint64_t bytes,
                                      void** out_address);
  void (*release_host)(void* user, void* address, uint64_t bytes);
} commsched_engine_memory_t;

static inline commsched_engine_memory_t commsched_engine_memory_init(void) {
  commsched_engine_memory_t memory;
  memset(&memory, 0, sizeof(memory));
  memory.struct_size = sizeof(memory);
  return memory;
}

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_KERNELS_H_

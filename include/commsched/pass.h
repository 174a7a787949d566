/// A pass: what runs of a module in a step, for one micro-batch. Conventions:
/// commsched.h.
#ifndef COMMSCHED_PASS_H_
#define COMMSCHED_PASS_H_

#include <stdint.h>

#include "commsched/engine_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t commsched_pass_kind_t;
enum {
  COMMSCHED_FORWARD = 0,  ///< A backward follows.
  /// The forward once more, from what entered it, before its backward
  /// (activation checkpointing).
  COMMSCHED_RECOMPUTE = 1,
  /// Of the last FORWARD that has no backward yet.
  COMMSCHED_BACKWARD = 2,
  /// A backward in two halves (zero-bubble schedules). The first makes the
  /// gradients of what entered the module, and reads its parameters. The second
  /// adds to the gradients of parameters, whose values it does not read.
  COMMSCHED_BACKWARD_INPUT = 3,
  COMMSCHED_BACKWARD_WEIGHT = 4,
  COMMSCHED_NO_GRAD = 5  ///< A forward without a backward.
};

/// Zero-initialise, then set; a plain struct so that lists of it are easy to
/// write. Never grows.
typedef struct commsched_pass {
  commsched_pass_kind_t kind;
  commsched_module_id_t module;
  uint32_t micro_batch;  ///< From 0 on.
  uint32_t reserved;     ///< 0.
} commsched_pass_t;

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_PASS_H_

/// Values of parameters in and out of an engine, and where its passes find
/// them. Conventions and errors: engine.h.
#ifndef COMMSCHED_ENGINE_VALUES_H_
#define COMMSCHED_ENGINE_VALUES_H_

#include <stdint.h>

#include "commsched/engine_types.h"
#include "commsched/export.h"
#include "commsched/pass.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Sets a parameter's values before the first step, or after a drain. Every
/// rank must give the same values, and stores those that it keeps; the next
/// step_begin compares them. Optimizer state is left as it is.
///
/// Shape:     `count` elements, row-major: all of the parameter.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, another count than the parameter's
///            NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  not drained since the last step
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_set_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const float* values, uint64_t count);

/// The elements of a parameter whose values this rank keeps: all of them, but
/// in stage 3 those in its shard of the bucket, which may be none (`*out_count`
/// 0), unless the parameter is one that stays whole.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            NOT_FOUND            no such parameter
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_parameter_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t* out_offset, uint64_t* out_count);

/// commsched_engine_set_parameter() for the `count` elements from `offset` on:
/// a rank need not make those that it does not keep.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as commsched_engine_set_parameter(); INVALID_ARGUMENT if they are
///            not all elements of the parameter
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_set_parameter_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t offset, const float* values, uint64_t count);

/// Reads a parameter's values, of `parameter_dtype`, as fp32: before the first
/// step, after a drain, or within an evaluation. In stage 3 within the
/// forwards, of an evaluation, of modules that use the parameter, unless it is
/// one that stays whole.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as commsched_engine_set_parameter(); the session's first failure,
///            naming the buffer, if that left the parameter's values poisoned
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_get_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    float* out_values, uint64_t count);

/// Addresses of a parameter's values, of `parameter_dtype`, and its gradient,
/// of `parameter_dtype`, fixed. Values may be read within forward
/// and backward of modules that use the parameter, and between a drain and the
/// next step. The gradient may be added to (+=) within backward of those
/// modules: the engine zeroes it before the first of a step, and at other times
/// its memory may hold something else.
///
/// In stages 2 and 3 the gradient's address is another one in each micro-batch,
/// and NULL outside of backwards that use the parameter, if its bucket is
/// reduced in each (`accumulate_bytes`): ask after each begin.
///
/// In stage 3 the address of the values holds until the end of the forward or
/// backward in which the call was made, and is NULL outside of those that use
/// the parameter: ask after each begin. Not so for parameters that stay whole.
///
/// Ownership: the engine's, for its life.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            NOT_FOUND            no such parameter
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_parameter_address(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const void** out_values, void** out_gradient);

/// Where a parameter is in a pass. Never grows.
typedef struct commsched_parameter_place {
  commsched_parameter_id_t parameter;
  uint32_t reserved;   ///< 0.
  const void* values;  ///< NULL in a BACKWARD_WEIGHT, if it is gathered.
  /// NULL in passes that add to no gradients, and of a frozen parameter.
  void* gradient;
} commsched_parameter_place_t;

/// Addresses of all parameters of a pass's module in that pass, its own first
/// and then those that it uses of others, each in the order in which they were
/// added: as commsched_engine_parameter_address() gives them within the pass.
/// The same until replan. Of a module that comes several times in a
/// micro-batch: of the first time, and with `fixed_addresses` of each.
///
/// Ownership: `pass` is read during the call. The memory is the engine's: what
///            is there outside of the pass may be something else.
/// Shape:     `out_places` has room for `count`; `*out_count`: how many the
///            module has, of which so many were written as there was room for.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, but for `out_places` with `count` 0;
///                                 an unknown kind; a pass that the step plan
///                                 does not have
///            FAILED_PRECONDITION  an order is recorded
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_addresses(
    commsched_engine_t* engine, const commsched_pass_t* pass,
    commsched_parameter_place_t* out_places, uint64_t count,
    uint64_t* out_count);

/// Address of the loss scale, fixed: what the loss is to be
/// multiplied by before it is differentiated. 1 without `loss_scale`. To be
/// read within forwards and backwards, on the stream on which these compute:
/// update changes it there.
///
/// Ownership: the engine's, for its life.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_loss_scale_address(
    commsched_engine_t* engine, const double** out_scale);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_VALUES_H_

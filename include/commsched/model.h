/// What is trained: modules, their parameters, and what they do and exchange
/// within themselves. A model is pure data. It has no memory of parameters,
/// knows no rank, and meets nobody; engines (engine.h) are made for it.
///
/// Modules and parameters are added in the order of first use, and all ranks of
/// an engine's group add the same. Where modules exchange activations, as
/// sequence parallelism and its like do, ops and collectives are added to them.
/// A module's forward or backward is one op of the step's graph, unless ops are
/// added to it here. Then the step runs, between the begin and the end of that
/// forward or backward (engine.h):
///
///   pass_begin
///   for each op that was added, in that order: op_begin, its work, op_end
///   pass_end
///
/// Ops say which activations they read and write, and collectives what they
/// take and leave, in the order in which they would run one after the other. So
/// the plan knows what each collective waits for and what waits for it: it is
/// launched by the op_end that completes its input, runs beside the ops that
/// follow, and op_begin waits for those collectives whose output the op reads
/// or whose input it overwrites. Evaluations run those of the forward.
///
/// A module that is left out of a step (`allow_skipped_modules`) sends what its
/// activations happen to hold: all ranks that exchange leave it out together.
///
/// Several engines can have one model, such as those of ranks that are threads
/// of one process, unless it has activations, whose memory is one rank's. A
/// step plan keeps the models that it was made of, so that their handles may be
/// destroyed before it. Once a step plan is made of it, a model is closed: it
/// takes no more.
///
/// Conventions: commsched.h. Functions here leave their message where
/// commsched_last_error() finds it. One thread at a time adds to a model.
#ifndef COMMSCHED_MODEL_H_
#define COMMSCHED_MODEL_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine_types.h"
#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/pass.h"
#include "commsched/status.h"
#include "commsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Modules, parameters and what they exchange.
typedef struct commsched_model commsched_model_t;

/// A parameter of a module, or one that several modules use.
typedef struct commsched_parameter_desc {
  uint64_t struct_size;
  const char* name;  ///< Unique among parameters; copied.
  /// Copied. Of a scalar there are none, and `dims` may be NULL. One of 0: the
  /// parameter has no elements.
  const uint64_t* dims;
  uint32_t num_dims;
  commsched_module_id_t module;  ///< The owner: the first module to use it.
  /// 1: its values and gradients are of `dtype`. 0: of the step plan's
  /// `parameter_dtype`.
  uint32_t has_dtype;
  uint32_t dtype;  ///< commsched_dtype_t: F32, F16 or BF16.
  /// 1: it is not trained. It is gathered, sharded and saved like all others,
  /// and has no gradient, no optimizer's state and no master weights: its
  /// values are rounded to its dtype when they are set.
  uint32_t frozen;
  /// Which values of commsched_engine_update_args_t it is stepped with; below
  /// `option_sets` of its engines, or 0.
  uint32_t option_set;
  /// 1: no shard boundary cuts it, so that one rank steps all of it. Its bucket
  /// takes as many times its elements as there are shards, at least: parameters
  /// that come next fill it up, whatever `bucket_bytes` is. Nothing changes in
  /// stage 0, where nothing is cut.
  uint32_t atomic;
  /// A group of the model all of whose ranks have this parameter, with the same
  /// values and gradients, while they have other parts of other parameters: the
  /// norm counts it on the first of them. Where an engine with a `norm_group`
  /// computes a norm, all of them are in that group. 0: none.
  commsched_group_id_t replicated_over;
} commsched_parameter_desc_t;

static inline commsched_parameter_desc_t commsched_parameter_desc_init(void) {
  commsched_parameter_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Ids are dense from 0 in the order of registration, over all modules.
typedef uint32_t commsched_activation_id_t;
typedef uint32_t commsched_module_op_id_t;

/// Memory that collectives of modules read or write.
typedef struct commsched_activation_desc {
  uint64_t struct_size;
  const char* name;  ///< Unique among activations; copied.
  commsched_dtype_t dtype;
  uint32_t reserved;  ///< 0.
  uint64_t count;     ///< Elements, at least 1.
  /// Aligned to the element size. NULL in a model that is only planned.
  void* address;
} commsched_activation_desc_t;

static inline commsched_activation_desc_t commsched_activation_desc_init(void) {
  commsched_activation_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// An op of a module. In `accesses`, `buffer` is the id of an activation.
typedef struct commsched_module_op_desc {
  uint64_t struct_size;
  const char* name;  ///< Unique in this direction of the module; copied.
  const commsched_access_t* accesses;
  /// Of the module, those whose values the op reads.
  const commsched_parameter_id_t* parameters;
  /// Of the module, those whose gradients it adds to; of a backward only.
  /// Gradients are reduced once the last op that lists them has ended.
  const commsched_parameter_id_t* gradients;
  uint32_t num_accesses;
  uint32_t num_parameters;
  uint32_t num_gradients;
  uint32_t backward;  ///< 1: of the module's backward, not its forward.
  double flops;       ///< Cost hint per micro-batch; 0: unknown.
} commsched_module_op_desc_t;

static inline commsched_module_op_desc_t commsched_module_op_desc_init(void) {
  commsched_module_op_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// A collective of a module; `buffer` of the accesses is the id of an
/// activation. The other fields are those of commsched_collective_desc_t.
typedef struct commsched_module_collective_desc {
  uint64_t struct_size;
  const char* name;  ///< Unique in this direction of the module; copied.
  commsched_collective_t kind;
  commsched_reduce_op_t reduce_op;
  commsched_group_id_t group;  ///< 0: the engine's.
  int32_t root;
  commsched_access_t input;
  commsched_access_t output;
  const uint64_t* counts;
  uint32_t num_counts;
  uint32_t backward;  ///< 1: of the module's backward, not its forward.
  int32_t priority;   ///< Hint; reductions and gathers have 0.
  int32_t peer_offset;
} commsched_module_collective_desc_t;

static inline commsched_module_collective_desc_t
commsched_module_collective_desc_init(void) {
  commsched_module_collective_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Creates a model without modules.
///
/// Ownership: release with commsched_model_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_model_create(commsched_model_t** out_model);

/// Releases the handle. Step plans that were made of the model keep it.
/// Accepts NULL.
///
/// Threads:   any, once per handle.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_model_destroy(commsched_model_t* model);

/// Adds a module. The order of the calls is the order of forward, unless an
/// engine records that; backward runs in reverse. `flops_*`: cost hints per
/// micro-batch, 0 for unknown.
///
/// Ownership: `name` is copied.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, an empty name, a hint that is negative
///                                 or not finite
///            ALREADY_EXISTS       another module is called `name`
///            FAILED_PRECONDITION  a step plan is made of it
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_model_add_module(
    commsched_model_t* model, const char* name, double forward_flops,
    double backward_flops, commsched_module_id_t* out_module);

/// Adds a parameter. Parameters lie in buckets of one kind: frozen ones apart
/// from those that are trained, and each dtype by itself.
///
/// Ownership: `desc` is read during the call.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, an empty name, a flag that is not 0 or
///                                 1, a dtype that is not F32, F16 or BF16, a
///                                 dtype without `has_dtype`
///            OUT_OF_RANGE         more than 2^40 elements in all
///            ALREADY_EXISTS       another parameter is called `name`
///            NOT_FOUND            no such module
///            FAILED_PRECONDITION  a step plan is made of it
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_model_add_parameter(
    commsched_model_t* model, const commsched_parameter_desc_t* desc,
    commsched_parameter_id_t* out_parameter);

/// `module` also uses `parameter`, which an earlier module owns (tied weights).
///
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such module or parameter
///            INVALID_ARGUMENT     the owner is not an earlier module
///            ALREADY_EXISTS       `module` uses it already
///            FAILED_PRECONDITION  a step plan is made of it
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_model_use_parameter(
    commsched_model_t* model, commsched_module_id_t module,
    commsched_parameter_id_t parameter);

/// Adds a group of `num_ranks` ranks, on the axis `name`, for collectives of
/// modules. An engine is given the group itself (`groups` of
/// commsched_engine_desc_t). Group 0, the engine's own, is there already and
/// called "dp_shard".
///
/// Ownership: `name` is copied.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, not a name (graph.h), no ranks
///            ALREADY_EXISTS       another group is called `name`
///            FAILED_PRECONDITION  a step plan is made of it
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_model_add_group(commsched_model_t* model, const char* name,
                          int32_t num_ranks, commsched_group_id_t* out_group);

/// Adds an activation. Its memory may be touched within those ops only whose
/// accesses say so.
///
/// Ownership: `desc` is read during the call. The memory stays the caller's and
///            must outlive the engine that runs the model.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, a misaligned address, not a name
///                                 (graph.h), an unknown dtype, `count` 0
///            ALREADY_EXISTS       another activation is called `name`
///            OUT_OF_RANGE         more than 2^63-1 bytes
///            FAILED_PRECONDITION  a step plan is made of it
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_model_add_activation(
    commsched_model_t* model, const commsched_activation_desc_t* desc,
    commsched_activation_id_t* out_activation);

/// Adds an op to the forward or backward of `module`, after the ops and
/// collectives that were added there before. In the graph it is called
/// `forward[<micro-batch>].<module>.<name>`, or `backward`.
///
/// The cost hints of a module with ops are those of what runs between its begin
/// and its first op.
///
/// Ownership: `desc` is read during the call.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such module, parameter or activation
///            INVALID_ARGUMENT     NULL, a parameter that the module does not
///                                 use, gradients of a forward or of a frozen
///                                 parameter, a hint that is negative or not
///                                 finite, and those of
///                                 commsched_graph_add_compute()
///            ALREADY_EXISTS       the name is taken in this direction
///            OUT_OF_RANGE         a region outside its activation
///            FAILED_PRECONDITION  a step plan is made of it
///            On error nothing is added.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_model_add_op(
    commsched_model_t* model, commsched_module_id_t module,
    const commsched_module_op_desc_t* desc, commsched_module_op_id_t* out_op);

/// Adds a collective to the forward or backward of `module`, after the ops and
/// collectives that were added there before; named in the graph as ops are.
/// How many ranks group 0 has is known when a step plan is made: a collective
/// over it whose counts do not fit is refused then.
///
/// Ownership: `desc` is read during the call.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such module, group or activation
///            ALREADY_EXISTS       the name is taken in this direction
///            FAILED_PRECONDITION  a step plan is made of it
///            and those of commsched_graph_add_collective()
///            On error nothing is added.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_model_add_collective(
    commsched_model_t* model, commsched_module_id_t module,
    const commsched_module_collective_desc_t* desc);

/// Activation checkpointing: the caller keeps only what enters module `first`,
/// and runs the forwards of modules `first` to `last` once more in each
/// micro-batch, right before their backwards: RECOMPUTE of each, in order. In
/// stage 3 their buckets are gathered for that, and stay for the backwards as
/// far as memory allows. Evaluations are as ever.
///
/// Neighbours in the order of forward; where a recorded order sets them apart,
/// each group of neighbours is recomputed by itself.
///
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such module
///            INVALID_ARGUMENT     `last` comes before `first`
///            ALREADY_EXISTS       one of them is recomputed with others
///            FAILED_PRECONDITION  a step plan is made of it
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_model_recompute(commsched_model_t* model, commsched_module_id_t first,
                          commsched_module_id_t last);

/// Sets the passes of a step, in the order in which the caller runs them, for
/// all micro-batches: 1F1B, GPipe, zero-bubble and cached-gradient losses are
/// such lists. Without one, forwards run in the order of modules and backwards
/// in reverse, micro-batch after micro-batch. A later call replaces the list;
/// with `num_passes` 0 there is none again.
///
/// A FORWARD has one backward after it, a BACKWARD or a BACKWARD_INPUT and then
/// a BACKWARD_WEIGHT, and may have a RECOMPUTE before that. Where a module runs
/// several times in a micro-batch, a backward is of the last FORWARD that has
/// none yet, and the k RECOMPUTE before it are of the last k of them, in their
/// order. Every module runs forward in every micro-batch, and has a backward in
/// all of them or, if none of its parameters is trained, in none. Gradients are
/// added in BACKWARD and BACKWARD_WEIGHT: of ops within a module, those that
/// add to gradients run in the second half, and all others in the first, with
/// the collectives. A bucket is reduced after the last of these that touches
/// it, so that one whose modules' backwards lie far apart is late.
///
/// An evaluation runs the forwards of micro-batch 0 in their order: FORWARD, or
/// NO_GRAD of modules that have no other.
///
/// Ownership: `passes` are copied.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL; an unknown kind; a pass without one
///                                 that must come before or after it, which is
///                                 named by its index and its text
///            NOT_FOUND            no such module
///            FAILED_PRECONDITION  modules are recomputed by
///                                 commsched_model_recompute(); a step
///                                 plan is made of it
///            commsched_step_plan_build() refuses, with INVALID_ARGUMENT, a
///            list that leaves out a module or has another number of
///            micro-batches, and a second half of a backward with an op that
///            reads parameters, writes an activation, or reads one that is
///            overwritten before it.
/// Since:     0.3
COMMSCHED_API commsched_status_t
commsched_model_set_passes(commsched_model_t* model,
                           const commsched_pass_t* passes, uint64_t num_passes);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_MODEL_H_

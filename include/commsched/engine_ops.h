/// Ops and collectives within a module: what sequence parallelism and its like
/// need, an exchange of activations under the compute around it.
///
/// A module's forward or backward is one op of the step's graph, unless ops are
/// added to it here. Then the step runs, between the begin and the end of that
/// forward or backward (engine.h):
///
///   forward_begin
///   for each op that was added, in that order: op_begin, its work, op_end
///   forward_end
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
/// What is added must be equal on all ranks of the engine's group, addresses
/// aside. Conventions and errors: engine.h.
#ifndef COMMSCHED_ENGINE_OPS_H_
#define COMMSCHED_ENGINE_OPS_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  void* address;      ///< Aligned to the element size.
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

/// Adds a group, on the axis `name`, for collectives of modules. Group 0, the
/// engine's own, is there already and called "dp_shard".
///
/// Ownership: `name` is copied; `group` must live until
///            commsched_engine_build() has succeeded.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, not a name (graph.h)
///            ALREADY_EXISTS       another group is called `name`
///            FAILED_PRECONDITION  the engine is prepared or built
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_add_group(
    commsched_engine_t* engine, const char* name, commsched_group_t* group,
    commsched_group_id_t* out_group);

/// Adds an activation. Its memory may be touched within those ops only whose
/// accesses say so.
///
/// Ownership: `desc` is read during the call. The memory stays the caller's and
///            must outlive the engine.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, a NULL or misaligned address, not a
///                                 name (graph.h), an unknown dtype, `count` 0
///            ALREADY_EXISTS       another activation is called `name`
///            OUT_OF_RANGE         more than 2^63-1 bytes
///            FAILED_PRECONDITION  the engine is prepared or built
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_add_activation(
    commsched_engine_t* engine, const commsched_activation_desc_t* desc,
    commsched_activation_id_t* out_activation);

/// Adds an op to the forward or backward of `module`, after the ops and
/// collectives that were added there before. In the graph it is called
/// `forward[<micro-batch>].<module>.<name>`, or `backward`.
///
/// The cost hints of a module with ops are those of what runs between its begin
/// and its first op.
///
/// Ownership: `desc` is read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such module, parameter or activation
///            INVALID_ARGUMENT     NULL, a parameter that the module does not
///                                 use, gradients of a forward, a hint that is
///                                 negative or not finite, and those of
///                                 commsched_graph_add_compute()
///            ALREADY_EXISTS       the name is taken in this direction
///            OUT_OF_RANGE         a region outside its activation
///            FAILED_PRECONDITION  the engine is prepared or built
///            On error nothing is added.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_add_op(
    commsched_engine_t* engine, commsched_module_id_t module,
    const commsched_module_op_desc_t* desc, commsched_module_op_id_t* out_op);

/// Adds a collective to the forward or backward of `module`, after the ops and
/// collectives that were added there before; named in the graph as ops are.
///
/// Ownership: `desc` is read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such module, group or activation
///            ALREADY_EXISTS       the name is taken in this direction
///            FAILED_PRECONDITION  the engine is prepared or built
///            and those of commsched_graph_add_collective()
///            On error nothing is added.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_add_collective(
    commsched_engine_t* engine, commsched_module_id_t module,
    const commsched_module_collective_desc_t* desc);

/// Begins `op`, which ends what ran before it in its module: waits for the
/// collectives that it depends on.
///
/// Threads:   one per engine at a time.
/// Blocks:    until these are complete.
/// Errors:    FAILED_PRECONDITION  a call out of order, as step_begin
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_op_begin(commsched_engine_t* engine,
                          commsched_module_op_id_t op, uint32_t micro_batch);

/// Ends `op`, and issues the collectives whose inputs are now complete.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as op_begin
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_op_end(commsched_engine_t* engine, commsched_module_op_id_t op,
                        uint32_t micro_batch);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_OPS_H_

/// What the ranks that train a model do in a step: its buckets, collectives and
/// memory, and their order. A step plan is made without a rank: it has no
/// context, no memory of parameters and no session. Engines run it (engine.h);
/// whoever wants to know what a step takes and costs reads it. Library:
/// libcommsched_engine.
///
/// It is a pure function of models, options and profile: every rank that makes
/// it gets the same.
///
/// Conventions: commsched.h. Functions here leave their message where
/// commsched_last_error() finds it.
#ifndef COMMSCHED_STEP_PLAN_H_
#define COMMSCHED_STEP_PLAN_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine_types.h"
#include "commsched/export.h"
#include "commsched/model.h"
#include "commsched/optimizer.h"
#include "commsched/plan.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_step_plan commsched_step_plan_t;

/// Whether buckets are merged or cut by predicted cost.
typedef enum commsched_bucket_merge {
  /// If `bucket_bytes` is 0, and a `profile` says what the link can do.
  COMMSCHED_BUCKET_MERGE_AUTO = 0,
  COMMSCHED_BUCKET_MERGE_OFF = 1,
  COMMSCHED_BUCKET_MERGE_ON = 2,
} commsched_bucket_merge_t;

/// What shapes a step. Equal for all ranks of a role, and part of what these
/// compare when they create their engines.
typedef struct commsched_step_plan_options {
  uint64_t struct_size;
  uint32_t zero_stage;  ///< 0 to 3: docs/engine.md.
  /// Backwards per optimizer step; 0 means 1. A window of N backwards, each of
  /// M accumulated micro-batches, is N x M of them. At most 2^20 forwards and
  /// backwards of modules per step.
  uint32_t micro_batches;
  /// As if of fp32, whatever the dtypes. 0: 25 MiB. See `bucket_merge`.
  uint64_t bucket_bytes;
  /// Of the first and the last bucket, if less than `bucket_bytes`: the next
  /// forward waits for the first, and reduction begins with the last. 0: all
  /// buckets alike.
  uint64_t edge_bucket_bytes;
  /// Stage 3: most memory for what is whole on a rank for a while, parameter
  /// buckets from their gather to their last use and gradient buckets; the
  /// arena takes no more. A bucket that is used again soon stays if there is
  /// room, others are gathered again; what room is left is for gathering ahead
  /// of use. 0: what a module needs while the buckets of the next one are
  /// gathered, so that stage 3 takes less than stage 2. A limit above all of
  /// them, such as UINT64_MAX: every bucket is gathered once per step, which
  /// sends a third less. `plan->arena_bytes` limits the same memory. Of several
  /// roles each is within the limit.
  uint64_t max_live_bytes;
  /// Stage 3: parameters of fewer bytes, as if of fp32, stay whole on every
  /// rank, beside `max_live_bytes`. They have buckets of their own, gathered
  /// after the optimizer as in stage 1. 0: none.
  uint64_t persist_below;
  /// With several micro-batches: most memory for gradient buckets that
  /// accumulate whole over all backwards of a step, to be reduced once, under
  /// the last. Those are chosen whose reductions take the link longest.
  /// The others are reduced in every micro-batch, and the results added in
  /// their order, in fp32: that takes memory for a second gradient shard,
  /// unless `offloads_gradients`, and for the whole bucket only until its
  /// reduction is done. 0: no limit; 1: no bucket accumulates. In stages 0 and
  /// 1 gradients have memory for all the time, so that a limit costs memory; it
  /// is there for equal results.
  uint64_t accumulate_bytes;
  /// Stage 3: most bytes of buckets that are gathered before the modules that
  /// use them come: how far ahead. A bucket of more bytes is gathered when the
  /// module before its first one has ended. 0: as far as memory allows.
  uint64_t prefetch_bytes;
  /// With `offloads`: most memory for state that is on its way: whole buckets,
  /// of which so many are fetched before the optimizer begins. 0: two of the
  /// largest.
  uint64_t offload_staging_bytes;
  /// commsched_bucket_merge_t: whether buckets of other bytes than
  /// `bucket_bytes` are taken, from the half of them to 64 times, if a step is
  /// predicted to get shorter, or as long with fewer of them, and to take no
  /// more than a thirty-second more memory. More buckets are taken only if that
  /// saves a thirty-second of the step.
  uint32_t bucket_merge;
  /// Precision, each commsched_dtype_t: F32 (0), F16 or BF16. What the model
  /// computes with, and of the memory that backward adds to, where a parameter
  /// has no dtype of its own (model.h). Unless F32, fp32
  /// master weights are kept beside it, sharded like the optimizer's state; the
  /// optimizer steps these and rounds. Gradients add up over micro-batches in
  /// fp32: then a bucket that accumulates whole has memory for the sum, too, to
  /// which the gradients of each micro-batch are added after their backward.
  uint32_t parameter_dtype;
  /// Of gradients that travel: ranks sum in fp32, and round the mean to it.
  uint32_t reduce_dtype;
  uint32_t clips;        ///< 1: gradients are clipped by their norm.
  uint32_t scales_loss;  ///< 1: there is a loss scale.
  /// 1: a step with a reduced gradient that is not finite, on any rank, is
  /// skipped on all: weights and the optimizer's state stay as they are, and it
  /// is counted (commsched_engine_info_t). So it is with `clips` and
  /// `scales_loss`; 1: without them, too, for which the optimizer waits for all
  /// reductions. 0, and no norm: such a step poisons the weights.
  uint32_t check_finite;
  /// 1: commsched_engine_norm() is called, also where none of `clips`,
  /// `scales_loss` and `check_finite` makes the engine compute a norm. 0, and
  /// none of these: no norm is computed.
  uint32_t norm;
  /// Ranks that hold the other parts of the model, and this one, over which the
  /// norm goes, too (`norm_group`), and which update alike. 0: 1. Of several
  /// roles see `role_of_norm_member`.
  uint32_t norm_members;
  /// Of how many option sets commsched_engine_update() is given values, if it
  /// is given any. Each parameter is of one of them. At most 65,536.
  uint32_t option_sets;
  /// 1: commsched_engine_gradient_ready() is called, so that a bucket can be
  /// reduced in the middle of a pass: with an op of its own, once all gradients
  /// that the pass adds to it are ready. 0: at the end of the pass.
  uint32_t gradient_ready;
  uint32_t offloads;  ///< 1: the optimizer's state is in a pool.
  /// 1: commsched_engine_gradient_absent() is called, so that the ranks tell
  /// each other at the end of a step which gradients are absent: 8 bytes for
  /// each parameter, which the optimizer waits for. 0: every gradient counts.
  uint32_t absent_gradients;
  /// 1: a step can be cancelled on all ranks (commsched_engine_step_cancel())
  /// until update, in every stage, with a norm or without: a rank that does
  /// tells the others with a word of its own at the end of the step. 0: with
  /// the norm, where ranks exchange one, unless `absent_gradients` is 1.
  uint32_t cancel_all;
  /// Stage 3: 1: a parameter that is gathered several times lies at one address
  /// each time, until replan: for callers who keep addresses, as frameworks do
  /// that save views. The arena may have to be larger for it
  /// (commsched_step_plan_info_t). 0: each time where there is room.
  uint32_t fixed_addresses;
  /// 1: an evaluation is any number of forwards of all modules, on each rank
  /// another one, none among them (commsched_engine_evaluation_begin()). 0: it
  /// is one on all ranks.
  uint32_t uneven_evaluations;
  uint32_t reserved;  ///< 0.
  /// What steps the weights: commsched_adamw(), commsched_sgd(), or a table of
  /// the caller's (optimizer.h). NULL: AdamW with 0.9, 0.95 and 1e-8. Copied.
  const commsched_optimizer_table_t* optimizer;
  /// Window, schedule, deterministic, ...; NULL: defaults. Copied. `backend`
  /// is that of the ranks, commsched_context_backend(). `arena_bytes` bounds
  /// the gradient buckets of stages 2 and 3, which share memory; 0: those of
  /// the modules that run while a bucket is reduced, or half of all, if that is
  /// less and enough for each module. Stage 3: see `max_live_bytes`.
  const commsched_plan_options_t* plan;
  /// What the step is planned for: the link above all, without which priority
  /// is guesswork. `op_cost_ns` must be NULL. NULL: defaults. Copied.
  const commsched_cost_profile_t* profile;
  /// By what the gradients that the ranks of the engine's group add up are
  /// divided, instead of by the number of these ranks. It is stated in one of
  /// two ways. A number, such as 1 for a sum. Or the axes over which gradients
  /// are to be a mean, as ids of groups of each role's model, 0 for the ranks
  /// that share its parameters: the numbers of ranks of all these groups are
  /// multiplied. So is data and sequence without tensor parallelism, or, where
  /// the ranks of one expert share its parameters, all ranks whose tokens it
  /// has. The norm, and what it is clipped to, is that of divided gradients.
  /// 0 and NULL: the mean over the engine's group. The groups are copied.
  double gradient_divisor;
  const uint32_t* divisor_groups;
  uint32_t num_divisor_groups;
  /// Stages 2 and 3: 1: the reduced gradients are in a pool between their
  /// reduction and the optimizer. Those of a bucket that is reduced in every
  /// micro-batch (`accumulate_bytes`) add up there: what a reduction leaves is
  /// in the arena until, a few passes later, the sum so far has been copied to
  /// memory, is added to, and is copied back. Of a bucket that accumulates
  /// whole, what accumulates is in memory until it is reduced. 0: they are in
  /// memory.
  uint32_t offloads_gradients;
  /// With `offloads_gradients`: most memory for gradients that are on their way
  /// to the pool and back: whole shards of buckets, each as large as the
  /// largest, which for one that adds up is in fp32. 0: two of these.
  uint64_t gradient_staging_bytes;
} commsched_step_plan_options_t;

static inline commsched_step_plan_options_t commsched_step_plan_options_init(
    void) {
  commsched_step_plan_options_t options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  return options;
}

/// Ranks that train the same part of a model, such as a stage of a pipeline.
typedef struct commsched_step_plan_role {
  uint64_t struct_size;
  commsched_model_t* model;
  int32_t num_ranks;    ///< That share its parameters: data parallelism.
  uint32_t num_groups;  ///< Length of `role_of_member`; 0 if that is NULL.
  /// By group id of the model, the role (index in the array of roles) at each
  /// position of the group; a NULL entry: all are of this role. The entry of
  /// group 0 is NULL. NULL: all of them are.
  const uint32_t* const* role_of_member;
  /// The role at each position of the `norm_group` of this role's engines
  /// (commsched_engine_desc_t), this role among them. All roles that it names
  /// have the same entries. So the stages of a pipeline clip by the norm of the
  /// whole model, and skip and cancel steps together. Required where there are
  /// several roles and `norm_members` of the options is 2 or more. NULL of one
  /// role: all are of it.
  const uint32_t* role_of_norm_member;
  /// Length of `role_of_norm_member`: `norm_members`, where 0 is 1; 0 if that
  /// is NULL.
  uint32_t num_norm_members;
  uint32_t reserved;  ///< 0.
} commsched_step_plan_role_t;

static inline commsched_step_plan_role_t commsched_step_plan_role_init(void) {
  commsched_step_plan_role_t role;
  memset(&role, 0, sizeof(role));
  role.struct_size = sizeof(role);
  return role;
}

/// Plans the steps of all roles together, so that what they exchange has one
/// order (commsched_plan_build_roles()). `out_plans[i]` is of `roles[i]`. The
/// models take no more modules afterwards.
///
/// Ownership: all is read during the call. Release each plan with
///            commsched_step_plan_destroy().
/// Shape:     `roles` and `out_plans` have `num_roles` entries, 1 to 512; all
///            of `roles` have the same struct_size.
/// Threads:   any; none adds to the models meanwhile.
/// Blocks:    no; as long as planning the graph takes, several times.
/// Errors:    INVALID_ARGUMENT     NULL, a size of a struct that is 0 or
///                                 unknown, no roles or too many; an option
///                                 outside its range or with a stage that does
///                                 not have it; a table of an optimizer that
///                                 says neither element_wise nor whole_tensors,
///                                 or that its own check refuses; passes that
///                                 do not fit `micro_batches`; a collective
///                                 over group 0 whose counts do not fit
///                                 `num_ranks`; `num_groups` or
///                                 `num_norm_members` that is not the length
///                                 of what it is of, or that is above 0 with
///                                 NULL; no `role_of_norm_member` where it is
///                                 required, or one without this role or with
///                                 a role that there is not; a `reserved` that
///                                 is not 0
///            FAILED_PRECONDITION  a model without parameters
///            RESOURCE_EXHAUSTED   an arena limit that is too small, or a
///                                 `max_live_bytes` (names the module that
///                                 needs most or, where a role waits for
///                                 another, the op, and the least size that
///                                 works)
///            OUT_OF_RANGE         too many `micro_batches` to plan
///            NOT_FOUND            no policy, codec or backend of that name
///            and those of commsched_plan_build_roles(). On error no plan is
///            made.
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_step_plan_build(
    const commsched_step_plan_role_t* roles, uint32_t num_roles,
    const commsched_step_plan_options_t* options,
    commsched_step_plan_t** out_plans);

/// Gives up the handle; engines keep the plan that they run. Accepts NULL.
///
/// Threads:   any, once per handle.
/// Blocks:    never.
/// Since:     0.3
COMMSCHED_API void commsched_step_plan_destroy(commsched_step_plan_t* plan);

/// What a rank has memory for, and what a step is predicted to take. All bytes
/// are per rank, with padding.
typedef struct commsched_step_plan_info {
  uint64_t struct_size;
  uint64_t num_parameters;  ///< Elements.
  uint64_t num_buckets;
  uint64_t num_passes;       ///< Forwards and backwards of modules.
  uint64_t num_ops;          ///< Of the graph.
  uint64_t parameter_bytes;  ///< From step to step, as are the next two.
  uint64_t gradient_bytes;
  uint64_t optimizer_bytes;    ///< In memory; with masters beside the copy.
  uint64_t arena_bytes;        ///< While ops need it.
  uint64_t accumulated_bytes;  ///< Of gradient buckets over micro-batches.
  uint64_t due_bytes;          ///< What the stage comes to by its definition.
  int64_t step_ns;             ///< Predicted.
  /// Before buckets were merged or cut by cost; 0 where they were not.
  uint64_t given_buckets;
  int64_t given_step_ns;
  /// Of `arena_bytes`, what is there for `fixed_addresses` alone.
  uint64_t fixed_address_bytes;
} commsched_step_plan_info_t;

static inline commsched_step_plan_info_t commsched_step_plan_info_init(void) {
  commsched_step_plan_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Fills `out_info`, made by commsched_step_plan_info_init().
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_step_plan_get_info(
    const commsched_step_plan_t* plan, commsched_step_plan_info_t* out_info);

/// Fills `out_info`, made by commsched_engine_bucket_info_init(), as
/// commsched_engine_get_bucket_info() does for an engine that runs the plan.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            NOT_FOUND         no such bucket
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_step_plan_get_bucket_info(
    const commsched_step_plan_t* plan, uint64_t bucket,
    commsched_engine_bucket_info_t* out_info);

/// The plan of the graph of a step, for commsched_plan_explain() and its like.
/// NULL of NULL.
///
/// Ownership: the step plan's, and valid as long as that.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.3
COMMSCHED_API const commsched_plan_t* commsched_step_plan_core_plan(
    const commsched_step_plan_t* plan);

/// That of an evaluation; NULL if that exchanges nothing.
///
/// Ownership: the step plan's, and valid as long as that.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.3
COMMSCHED_API const commsched_plan_t* commsched_step_plan_evaluation_plan(
    const commsched_step_plan_t* plan);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_STEP_PLAN_H_

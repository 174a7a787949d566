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

/// What shapes a step. The fields that commsched_engine_desc_t has, too, are
/// described there.
typedef struct commsched_step_plan_options {
  uint64_t struct_size;
  uint32_t zero_stage;
  uint32_t micro_batches;
  uint64_t bucket_bytes, edge_bucket_bytes;
  uint64_t max_live_bytes, persist_below, accumulate_bytes, prefetch_bytes;
  uint64_t offload_staging_bytes;
  uint32_t bucket_merge;
  uint32_t parameter_dtype, reduce_dtype;
  /// 1: with clipping; with a loss scale; with a verdict on whether gradients
  /// are finite; with a norm that the caller reads. A norm is computed for
  /// each of these.
  uint32_t clips, scales_loss, check_finite, norm;
  /// Ranks that hold the other parts of the model, and this one, over which the
  /// norm goes, too (`norm_group`). 0: 1.
  uint32_t norm_members;
  uint32_t option_sets;
  uint32_t gradient_ready;
  uint32_t offloads;  ///< 1: the optimizer's state is in a pool.
  uint32_t absent_gradients, cancel_all;
  /// Stage 3: 1: a parameter that is gathered several times lies at one address
  /// each time, until replan: for callers who keep addresses, as frameworks do
  /// that save views. The arena may have to be larger for it
  /// (commsched_step_plan_info_t). 0: each time where there is room.
  uint32_t fixed_addresses;
  /// What it keeps per weight, and whether it needs whole tensors. NULL: AdamW.
  const commsched_optimizer_table_t* optimizer;
  const commsched_plan_options_t* plan;
  const commsched_cost_profile_t* profile;
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
///                                 unknown, no roles or too many, an option
///                                 outside its range, as
///                                 commsched_engine_create() names it
///            FAILED_PRECONDITION  a model without parameters
///            RESOURCE_EXHAUSTED   an arena limit that is too small, or a
///                                 `max_live_bytes` (names the module that
///                                 needs most)
///            OUT_OF_RANGE         too many `micro_batches` to plan
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

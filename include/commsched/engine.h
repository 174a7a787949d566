/// The reference engine: ZeRO-0/1/2/3 data parallelism on the public C ABI.
///
/// The caller describes a model (model.h) and calls begin/end around each pass
/// of a module (pass.h); the engine lays parameters out in buckets, builds the
/// graph, plans it and runs it. Library: libcommsched_engine.
///
/// A step, per rank:
///   step_begin
///   for each micro-batch: pass_begin/end of FORWARD per module, in order;
///                         of BACKWARD per module, in reverse, those that are
///                         recomputed after RECOMPUTE of each
///   update           (clip, step; gathers begin bucket by bucket)
///   step_end
/// Gradients are reduced, as the mean over the ranks, under the backward of the
/// last micro-batch; under each, where memory is too short to accumulate
/// (`accumulate_bytes`). Parameters gathered for step t+1 arrive under the rest
/// of the optimizer and the next forward: pass_begin waits for the
/// buckets of its module only. Passes in another order, as pipelines have them,
/// are a list (commsched_model_set_passes()).
///
/// With `allow_skipped_modules` a rank may leave modules out, as a branch does:
/// each rank for itself, and other modules in each micro-batch, step and
/// evaluation. A pass_begin of a later module says so; the backward is left out
/// for the same modules. All collectives go as ever, so that no rank
/// waits for a decision of another, and what was left out adds zeros to the
/// gradients.
///
/// Apart from that the modules of a step or an evaluation come in the planned
/// order, which is that of registration or the recorded one
/// (commsched_engine_record_order()), and backwards in reverse. A begin that
/// the plan does not have next is refused before anything has changed: the
/// message names the module that came and the call that the plan has next, and
/// the step goes on with that call.
///
/// In stage 3 no rank has all parameters: buckets are gathered before a forward
/// or backward uses them, ahead of it as far as memory allows, and released
/// afterwards. Between steps whoever needs them runs an evaluation:
///   evaluation_begin
///   pass_begin/end of FORWARD or NO_GRAD per module, in order (micro-batch 0)
///   evaluation_end
/// The other stages have evaluations, too, so that one program fits all.
///
/// On a device (commsched_context_device()) all of the engine's memory is the
/// device's. Calls of a step enqueue on `compute_stream` and on streams of the
/// library's own, and do not wait but for step_begin, which keeps the host at
/// most three steps ahead: where a call is said below to block until something
/// is there, the stream does. The device decides whether a step is skipped.
/// What ends training (`max_skipped_steps`, learning rates that differ) is
/// found when the host hears of it, up to three steps later or in drain; the
/// device steps no weight after the last skipped step that is allowed. Not
/// there yet: `optimizer_pool`, `measure_steps` and
/// commsched_engine_record_order().
///
/// Conventions: commsched.h. Functions here leave their message where
/// commsched_last_error() finds it. One thread per engine at a time; engines of
/// different ranks are independent.
#ifndef COMMSCHED_ENGINE_H_
#define COMMSCHED_ENGINE_H_

#include <stdint.h>
#include <string.h>

#include "commsched/commsched.h"
#include "commsched/engine_info.h"
#include "commsched/engine_kernels.h"
#include "commsched/engine_order.h"
#include "commsched/engine_types.h"
#include "commsched/model.h"
#include "commsched/optimizer.h"
#include "commsched/pass.h"
#include "commsched/pool.h"
#include "commsched/step_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_engine_desc {
  uint64_t struct_size;
  /// What the rank does in a step, and of which model; kept. Then `model` is
  /// NULL, and so are or 0 the fields that shape a step: those that
  /// commsched_step_plan_options_t has by the same name. NULL: the engine plans
  /// for itself, by these fields.
  const commsched_step_plan_t* step_plan;
  commsched_context_t* context;
  /// Data-parallel ranks. Where a norm is computed: all of the world, or
  /// `norm_group` says who has the rest of the model.
  commsched_group_t* group;
  /// What is trained. It is read when the engine is prepared, or built, and may
  /// be added to until then. The engine keeps it.
  commsched_model_t* model;
  /// Those of the model, commsched_model_add_group(), in the order of their
  /// ids: groups[0] is the group 1. Copied, and each used as `group` is.
  commsched_group_t* const* groups;
  uint64_t num_groups;
  uint32_t zero_stage;  ///< 0 to 3: docs/engine.md.
  /// Backwards per optimizer step; 0 means 1. A window of N backwards, each of
  /// M accumulated micro-batches, is N x M of them. At most 2^20 forwards and
  /// backwards of modules per step.
  uint32_t micro_batches;
  /// As if of fp32, whatever the dtypes. 0: 25 MiB. See `bucket_merge`.
  uint64_t bucket_bytes;
  /// Window, schedule, deterministic, ...; NULL: defaults. Copied.
  /// `arena_bytes` bounds the gradient buckets of stages 2 and 3, which share
  /// memory; 0: those of the modules that run while a bucket is reduced, or
  /// half of all, if that is less and enough for each module.
  /// Stage 3: see `max_live_bytes`.
  const commsched_plan_options_t* plan;
  /// What steps the weights: commsched_adamw(), commsched_sgd(), or a table of
  /// the caller's (optimizer.h). NULL: AdamW with 0.9, 0.95 and 1e-8. Copied.
  const commsched_optimizer_table_t* optimizer;
  float weight_decay;      ///< For parameters of two or more dimensions.
  float clip_norm;         ///< 0: no clipping.
  uint32_t measure_steps;  ///< Measure ops in this many first steps; 0: none.
  const commsched_engine_kernels_t* kernels;  ///< NULL: all ours. Copied.
  commsched_trace_t* trace;                   ///< NULL: record nothing.
  int64_t launch_timeout_ns;                  ///< Of the session.
  /// Of the first and the last bucket, if less than `bucket_bytes`: the next
  /// forward waits for the first, and reduction begins with the last. 0: all
  /// buckets alike.
  uint64_t edge_bucket_bytes;
  /// What the step is planned for: the link above all, without which priority
  /// is guesswork. Equal on all ranks; `op_cost_ns` must be NULL. NULL:
  /// defaults. Copied.
  const commsched_cost_profile_t* profile;
  /// Stage 3: most memory for what is whole on a rank for a while, parameter
  /// buckets from their gather to their last use and gradient buckets; the
  /// arena takes no more. A bucket that is used again soon stays if there is
  /// room, others are gathered again; what room is left is for gathering ahead
  /// of use. 0: what a module needs while the buckets of the next one are
  /// gathered, so that stage 3 takes less than stage 2. A limit above all of
  /// them, such as UINT64_MAX: every bucket is gathered once per step, which
  /// sends a third less. `plan->arena_bytes` limits the same memory.
  uint64_t max_live_bytes;
  /// Stage 3: parameters of fewer bytes, as if of fp32, stay whole on every
  /// rank, beside `max_live_bytes`. They have buckets of their own, gathered
  /// after the optimizer as in stage 1. 0: none.
  uint64_t persist_below;
  /// With several micro-batches: most memory for gradient buckets that
  /// accumulate whole over all backwards of a step, to be reduced once, under
  /// the last. Those are chosen whose reductions take the link longest.
  /// The others are reduced in every micro-batch, and the results added in
  /// their order, in fp32: that takes memory for a second
  /// gradient shard, and for the whole bucket only until its reduction is done.
  /// 0: no limit; 1: no bucket accumulates. In stages 0 and 1 gradients have
  /// memory for all the time, so that a limit costs memory; it is there for
  /// equal results.
  uint64_t accumulate_bytes;
  /// 1: forwards may be left out, with their backwards (top of this file). 0:
  /// a call out of order is an error, also on the way to a later module.
  uint32_t allow_skipped_modules;
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
  /// Dynamic loss scaling, for gradients of fp16 above all: the first scale, a
  /// power of two from 1 to 2^24. 0: none. The caller multiplies the loss by
  /// what commsched_engine_loss_scale_address() points to, the optimizer
  /// divides gradients by it. If a reduced gradient is not finite, on any rank,
  /// all skip the step (`max_skipped_steps`), and the scale halves; after
  /// `loss_scale_window` steps in a row without that it doubles, from 1 to
  /// 2^24.
  float loss_scale;
  uint32_t loss_scale_window;  ///< 0: 2000.
  /// Stage 3: most bytes of buckets that are gathered before the modules that
  /// use them come: how far ahead. A bucket of more bytes is gathered when the
  /// module before its first one has ended. 0: as far as memory allows.
  uint64_t prefetch_bytes;
  /// Where the optimizer's state lies, with master weights that are kept beside
  /// a copy: of each rank in a pool of its own, of all or of none. A bucket's
  /// state is copied to memory for its step and back, on a worker thread, so
  /// that copies run beside compute and collectives. NULL: in memory. The table
  /// is copied.
  const commsched_pool_t* optimizer_pool;
  /// Most memory for state that is on its way: whole buckets, of which so many
  /// are fetched before the optimizer begins. 0: two of the largest.
  uint64_t offload_staging_bytes;
  /// Of the session that runs the steps, as in commsched_session_desc_t: names
  /// of observer plugins, separated by commas, and where the flight record
  /// goes, a file per rank. NULL: none. Copied.
  const char* observers;
  const char* flight_path;
  /// A step with a reduced gradient that is not finite, on any rank, is skipped
  /// on all: weights and the optimizer's state stay as they are, and it is
  /// counted (commsched_engine_info_t). So wherever a norm is computed, that is
  /// with `clip_norm` or `loss_scale`; 1: without them, too, for which the
  /// optimizer waits for all reductions. 0, and no norm: such a step poisons
  /// the weights.
  uint32_t check_finite;
  /// So many steps skipped in a row fail the engine on every rank: something
  /// is wrong with the model or its data. 0: 50. A dynamic loss scale skips at
  /// most 24 on its way down. Counted from the last load on.
  uint32_t max_skipped_steps;
  /// On which the model computes, and so do the engine's kernels: the calling
  /// thread (0), or for ranks on a CUDA device a stream of it, on which calls
  /// then enqueue, and do not wait. See "On a device" above.
  commsched_stream_t compute_stream;
  const commsched_engine_memory_t* memory;  ///< NULL: all ours. Copied.
  /// 1: commsched_engine_norm() is called, also where neither `clip_norm` nor
  /// `loss_scale` nor `check_finite` makes the engine compute a norm. 0, and
  /// none of these: no norm is computed.
  uint32_t norm;
  /// Of how many option sets commsched_engine_update() is given values, if it
  /// is given any. Each parameter is of one of them.
  uint32_t option_sets;
  /// Ranks that hold the other parts of the model, and this one, over which the
  /// norm and what it decides go, too: those of tensor parallelism, of a
  /// pipeline, or both. Each element counts once: a parameter that several of
  /// them hold says so (`counted_elsewhere`). No other rank of `group` is in
  /// it. All of these ranks have the same `clip_norm`, `loss_scale` and so on,
  /// and take steps together. A group of this rank alone: `group` has all of
  /// the model, whatever other ranks of the world do. NULL: `group` is the
  /// world, or there is no norm.
  commsched_group_t* norm_group;
  /// commsched_bucket_merge_t: whether buckets of other bytes than
  /// `bucket_bytes` are taken, from the half of them to 64 times, if a step is
  /// predicted to get shorter, or as long with fewer of them, and to take no
  /// more than a thirty-second more memory.
  uint32_t bucket_merge;
  /// 1: commsched_engine_gradient_ready() is called, so that a bucket can be
  /// reduced in the middle of a pass: with an op of its own, once all gradients
  /// that the pass adds to it are ready. 0: at the end of the pass.
  uint32_t gradient_ready;
  /// 1: commsched_engine_gradient_absent() is called, so that the ranks tell
  /// each other at the end of a step which gradients are absent: 8 bytes for
  /// each parameter, which the optimizer waits for. 0: every gradient counts.
  uint32_t absent_gradients;
  /// 1: a step can be cancelled on all ranks (commsched_engine_step_cancel())
  /// until update, in every stage, with a norm or without: a rank that does
  /// tells the others with a word of its own at the end of the step. 0: with
  /// the norm, where ranks exchange one, unless `absent_gradients` is 1.
  uint32_t cancel_all;
} commsched_engine_desc_t;

static inline commsched_engine_desc_t commsched_engine_desc_init(void) {
  commsched_engine_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Another name of commsched_last_error(): the message of the last call that
/// failed on this thread, of the engine or of the library below it.
///
/// Ownership: the library's; valid until the next failing call on this thread.
/// Threads:   any; each thread has its own message.
/// Since:     0.1
COMMSCHED_API const char* commsched_engine_last_error(void);

/// Creates an engine for a model.
///
/// Ownership: `desc` is read during the call. Context, groups and trace must
///            live until commsched_engine_build() has succeeded; then the
///            engine holds what it needs of them. The handle of the model may
///            be destroyed at any time. What `user` of the kernels
///            and of the pool points to must outlive the engine. Release with
///            commsched_engine_destroy().
/// Threads:   any.
/// Blocks:    never: local.
/// Errors:    INVALID_ARGUMENT  NULL, one of `groups` among them, a size of a
///                              struct that is 0 or unknown, a stage above 3,
///                              an option of stage 3 with another stage, a
///                              table of an optimizer that says neither
///                              element_wise nor whole_tensors, or that its own
///                              check refuses, a negative or non-finite
///                              hyper-parameter, a dtype that is not F32, F16
///                              or BF16, a loss scale that is none, a pool
///                              without a function, staging bytes without pool,
///                              a norm with a group of some ranks only and no
///                              norm_group, a rank in both groups, half of an
///                              allocator, a compute stream that is not of the
///                              rank's device
///            UNIMPLEMENTED        something that is not there on a device; a
///                                 build without CUDA's compiler
///            UNAVAILABLE          the device's kernels cannot be loaded
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_create(
    const commsched_engine_desc_t* desc, commsched_engine_t** out_engine);

/// Drains, unless the session has failed, and releases everything. Accepts
/// NULL. Addresses that the engine gave are no longer valid.
///
/// Threads:   one, once per engine.
/// Blocks:    until every launch that is due is complete or has failed.
/// Since:     0.1
COMMSCHED_API void commsched_engine_destroy(commsched_engine_t* engine);

/// Does the part of commsched_engine_build() that is this rank's alone: lays
/// out, plans, and allocates all but the arena. Nothing can be added to the
/// model afterwards; after an error it can.
///
/// Optional. Of a rank that fails here the others learn nothing, and wait for
/// it in build until `launch_timeout_ns` is over; one that fails within build
/// tells them.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    FAILED_PRECONDITION  prepared or built already, no parameters
///            INVALID_ARGUMENT     `groups` are not those of the model, in
///                                 number or size; an activation without
///                                 memory; a collective over the engine's group
///                                 whose counts do not fit its size
///            RESOURCE_EXHAUSTED   more memory than the machine has for all
///                                 ranks of the group; no memory; an arena
///                                 limit that is too small, or a
///                                 `max_live_bytes` (names the module that
///                                 needs most)
///            OUT_OF_RANGE         too many `micro_batches` to plan
///            and those of commsched_plan_build()
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_prepare(commsched_engine_t* engine);

/// Prepares, unless that is done, compares what the members of the engine's
/// group have registered, and creates the session. Nothing can be added to the
/// model afterwards. All memory that steps use is there then; parameters and
/// optimizer state start as zeros.
///
/// Compared are modules and parameters, in order, with names, shapes and uses,
/// what modules have within, and those options that have a say in the results:
/// stage, micro-batches, dtypes, optimizer and its constants, decay, clipping,
/// loss scale, sizes of buckets (docs/engine.md). Engines of other groups, as
/// the halves of a tensor-parallel model, may differ. If it fails on one rank
/// it fails on all ranks of the world, at once.
///
/// Threads:   one per engine at a time.
/// Blocks:    until all ranks of the world have called, at most
///            `launch_timeout_ns`.
/// Errors:    FAILED_PRECONDITION  built already; no parameters; two ranks
///                                 registered something else: names the first
///                                 difference and both ranks' values; another
///                                 rank cannot prepare, or its plan differs
///            NOT_FOUND            no observer of that name
///            UNAVAILABLE          the flight record cannot be made
///            and those of commsched_engine_prepare() and
///            commsched_session_create()
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_build(commsched_engine_t* engine);

/// Goes on with another step plan: for passes whose order has changed for good,
/// other limits of memory, another link. It must be for the same state: the
/// same modules and parameters in the same buckets, stage, micro-batches,
/// dtypes and optimizer. Drains; addresses of gradients may be others
/// afterwards. Collective: all ranks of the world replan between the same
/// steps.
///
/// Ownership: the plan is kept.
/// Threads:   one per engine at a time.
/// Blocks:    as commsched_engine_drain(), and until all ranks of the world
///            have called, at most `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, a plan for another state: names the
///                                 first difference; nothing has changed then
///            FAILED_PRECONDITION  within a step, or while an order is recorded
///            or the session's first failure, and those of
///            commsched_session_create(), which are final
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_replan(
    commsched_engine_t* engine, const commsched_step_plan_t* step_plan);

/// Sets a parameter's values before the first step, or after a drain. Every
/// rank must give the same values, and stores those that it keeps; the next
/// step_begin compares them. Optimizer state is left as it is.
///
/// Shape:     `count` elements, row-major: all of the parameter.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, another count than the parameter's
///            NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  not built, or not drained since the last
///                                 step
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
///            FAILED_PRECONDITION  not built
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
/// of `parameter_dtype`, fixed after build. Values may be read within forward
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
///            FAILED_PRECONDITION  not built
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
/// The same from build to replan. Of a module that comes several times in a
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
///            FAILED_PRECONDITION  not built, or an order is recorded
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_addresses(
    commsched_engine_t* engine, const commsched_pass_t* pass,
    commsched_parameter_place_t* out_places, uint64_t count,
    uint64_t* out_count);

/// How a step differs from the planned one.
typedef struct commsched_step_desc {
  uint64_t struct_size;
  /// Micro-batches that come, of those planned: passes of the others run empty,
  /// and their gradients are zeros. 0: all. Each rank for itself.
  uint32_t micro_batches;
  uint32_t reserved;  ///< 0.
} commsched_step_desc_t;

static inline commsched_step_desc_t commsched_step_desc_init(void) {
  commsched_step_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Begins a step, as planned or, with `desc`, with less. The calls of a step
/// come in one order (top of this file). Once the session has failed, every
/// call of a step and commsched_engine_drain() return that failure, in order or
/// not.
///
/// The first one after build, after values were set that several ranks store,
/// or after a checkpoint was loaded compares checksums of such values, of the
/// optimizer's state in stage 0, and the number of steps, among the members of
/// the engine's group. So these set and load between the same steps. In stage 3
/// several ranks store only parameters below `persist_below`.
///
/// Ownership: `desc` is read during the call; NULL: as planned.
/// Threads:   one per engine at a time.
/// Blocks:    never, but for that comparison: until all members have called, at
///            most `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     more micro-batches than planned; a size of
///                                 `desc` that is 0 or unknown
///            FAILED_PRECONDITION  a call out of order; the message names the
///                                 call that is expected, and nothing changes;
///                                 values of two ranks differ: names the
///                                 parameter and the ranks; set or load again
///            DEADLINE_EXCEEDED    not all members compare (names the missing)
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_step_begin(
    commsched_engine_t* engine, const commsched_step_desc_t* desc);

/// Begins a pass. Waits until the module's parameters have arrived, but in a
/// BACKWARD_WEIGHT. A BACKWARD or BACKWARD_WEIGHT zeroes the gradient buckets
/// that it is the first of this step to touch, or of this micro-batch, if they
/// are reduced in each; to those it first adds what the previous reduction has
/// left.
///
/// Ownership: `pass` is read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    until the gathers of its buckets are complete, and of those of
///            modules that were left out before it; until memory of gradients
///            is free of the previous use.
/// Errors:    INVALID_ARGUMENT     NULL, an unknown kind
///            FAILED_PRECONDITION  a call out of order, as step_begin; a bucket
///                                 that does not cover the values of the last
///                                 step (I12)
///            or the session's first failure
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_pass_begin(
    commsched_engine_t* engine, const commsched_pass_t* pass);

/// Ends a pass, the one that began last, and issues the reduction of each
/// bucket whose gradients are now complete: in the last micro-batch, or in
/// each.
///
/// Ownership: `pass` is read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as step_begin; INVALID_ARGUMENT: NULL, an unknown kind
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_pass_end(
    commsched_engine_t* engine, const commsched_pass_t* pass);

/// Where a gradient may be added to, in the pass that has begun: zeroed before
/// the first of the step, or of the micro-batch if its bucket is reduced in
/// each. As commsched_engine_parameter_address() gives it, and refused outside
/// of passes that add to it.
///
/// Ownership: the memory is the engine's; valid until pass_end.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  not within a BACKWARD or BACKWARD_WEIGHT of
///                                 a module that uses the parameter
///            or the session's first failure
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_gradient_begin(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    void** out_gradient);

/// All that the pass which has begun adds to a gradient is there. With the last
/// one of its module's parameters in a bucket, the bucket's reduction is
/// issued, if no later pass adds to it: after those of the module's later
/// buckets, for which it waits. Gradients of which this is not said are
/// ready at pass_end, which nobody has to say. After the ops of the module, if
/// it has any (engine_ops.h).
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  as gradient_begin; `gradient_ready` of the
///                                 engine's description is 0; it was ready in
///                                 this pass before; ops are to come
///            or the session's first failure
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_gradient_ready(
    commsched_engine_t* engine, commsched_parameter_id_t parameter);

/// The pass that has begun has no gradient of a parameter, to which it adds
/// nothing. A rank has none in a step if that was said in each pass that would
/// have added to it, of all micro-batches, but for passes that were left out or
/// cancelled, which have none anyway. Where some ranks have one, the others
/// count as zeros in the mean. Where no rank has one, the parameter, its master
/// and its optimizer state stay as they are, to the bit: also without weight
/// decay. The corrections of the optimizer count the step all the same.
///
/// With `gradient_ready` the parameter needs no gradient_ready in this pass.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  as gradient_begin; `absent_gradients` of the
///                                 engine's description is 0; it was ready or
///                                 absent in this pass before
///            or the session's first failure
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_gradient_absent(
    commsched_engine_t* engine, commsched_parameter_id_t parameter);

/// For whom a step is cancelled.
typedef uint32_t commsched_cancel_scope_t;
enum {
  /// The others step, and this rank with them: in the mean over the ranks its
  /// gradients are zeros.
  COMMSCHED_CANCEL_LOCAL = 0,
  /// No rank steps. It is enough that one says so.
  COMMSCHED_CANCEL_ALL = 1
};

/// Cancels the forwards and backwards of a step at any point, as after an
/// exception: all that is left of them runs empty, so that collectives go as
/// planned, and gradients of this rank that were not sent yet are zeros. Those
/// of buckets that are reduced already keep what it has added. What follows is
/// update and step_end, and the next step begins as ever.
///
/// With COMMSCHED_CANCEL_ALL every rank learns in its update that the step is
/// cancelled: weights, the optimizer's state, its number of steps and the loss
/// scale stay as they are, and the step counts among those that were skipped.
/// The ranks tell each other with `cancel_all` or `absent_gradients` of the
/// engine's description, also ranks of `norm_group`; without them with the
/// norm, if they exchange one and it was not read.
///
/// After update nothing is left to cancel, and the call does nothing.
///
/// Threads:   one per engine at a time.
/// Blocks:    as the passes that are left.
/// Errors:    INVALID_ARGUMENT     an unknown scope
///            FAILED_PRECONDITION  not within a step; with
///                                 COMMSCHED_CANCEL_ALL, where neither
///                                 `cancel_all` nor `absent_gradients` is set:
///                                 no norm is computed, or it was read; stage 0
///                                 of several ranks; a rank that keeps no shard
///                                 of any parameter
///            UNIMPLEMENTED        a step in which the order is recorded
///            or the session's first failure
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_step_cancel(
    commsched_engine_t* engine, commsched_cancel_scope_t scope);

/// Ends the forwards and backwards of a step: what is left out until their end
/// adds zeros. Every reduction that is not issued yet is issued. Optional: norm
/// and update do it.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    FAILED_PRECONDITION  a call out of order, as step_begin
///            or the session's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t
commsched_engine_reduce(commsched_engine_t* engine);

/// The norm of the gradients, before clipping and with the loss scale taken
/// out. After the backwards of a step and before update: that of this step,
/// which all members of the engine's group then ask for, or none; it ends the
/// passes as reduce does. After update, until the next step has begun: that of
/// the last step, which update has computed. Not finite if a gradient is not.
///
/// Where the norm of a step is read before update, update compares the values
/// that ranks step with after that step, and not before it.
///
/// Threads:   one per engine at a time.
/// Blocks:    until the reductions are complete, and the device has computed
///            it.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  a call out of order, as step_begin; no norm
///                                 is computed: `norm`, `clip_norm`,
///                                 `loss_scale` and `check_finite` are 0; no
///                                 step has been updated
///            or the session's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t
commsched_engine_norm(commsched_engine_t* engine, double* out_norm);

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
/// the engine's group.
typedef struct commsched_engine_update_args {
  uint64_t struct_size;
  float lr;           ///< The learning rate.
  float clip_norm;    ///< 0: that of the engine's description.
  uint32_t num_sets;  ///< 0, or `option_sets` of the engine's description.
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

/// Clips by the global norm and steps the optimizer, first-needed bucket first;
/// each bucket's gather starts when it is stepped. Ends the passes, unless
/// reduce has. With a norm, if a reduced gradient is not finite on any rank, no
/// rank steps.
///
/// Ownership: `args` and its sets are read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    until the reductions are complete; not for the gathers.
/// Errors:    INVALID_ARGUMENT     a value that is negative or not finite, or
///                                 a beta not in [0, 1); another number of sets
///                                 than 0 or `option_sets`; `clip_norm` where
///                                 no norm is computed
///            FAILED_PRECONDITION  a call out of order, as step_begin;
///                                 or, final, and ABORTED with the same message
///                                 on ranks that are late: `max_skipped_steps`
///                                 skipped in a row; another value of `args` on
///                                 another rank, which the message names, in
///                                 this step where a norm is exchanged (stages
///                                 1 to 3) and was not read before, else in the
///                                 one before, which commsched_engine_drain()
///                                 finds, too
///            what the optimizer's `step` returns, with its name
///            or the session's first failure, with the name of the first buffer
///            that it left poisoned: no bucket is stepped with such data
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_engine_update(
    commsched_engine_t* engine, const commsched_engine_update_args_t* args);

/// Ends the step; gathers may still be running.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as step_begin
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_step_end(commsched_engine_t* engine);

/// Waits until all parameters of the last step have arrived: before evaluation,
/// checkpoints and host reads.
///
/// Threads:   one per engine at a time.
/// Blocks:    until the gathers are complete.
/// Errors:    FAILED_PRECONDITION  not built, or within a step
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_drain(commsched_engine_t* engine);

/// Drains, and begins a forward without a step, as validation and checkpoints
/// need it: pass_begin and pass_end of the FORWARD of every module follow in
/// order, with micro-batch 0, and then evaluation_end. Within, parameters are
/// read as in a step. Takes no memory beside the step's. Collective in stage 3:
/// all ranks evaluate equally often between the same steps.
///
/// Threads:   one per engine at a time.
/// Blocks:    as commsched_engine_drain().
/// Errors:    FAILED_PRECONDITION  a call out of order, as step_begin
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_evaluation_begin(commsched_engine_t* engine);

/// Ends the evaluation.
///
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    as step_begin
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_evaluation_end(commsched_engine_t* engine);

/// Fails steps and evaluations with ABORTED and `reason` on every rank, as
/// commsched_session_abort() does for one session. Does nothing before build.
///
/// Ownership: `reason` is copied.
/// Threads:   any, once build has returned.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_engine_abort(commsched_engine_t* engine,
                                          const char* reason);

/// Address of the loss scale, fixed after build: what the loss is to be
/// multiplied by before it is differentiated. 1 without `loss_scale`. To be
/// read within forwards and backwards, on the stream on which these compute:
/// update changes it there.
///
/// Ownership: the engine's, for its life.
/// Threads:   one per engine at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  not built
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_loss_scale_address(
    commsched_engine_t* engine, const double** out_scale);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_H_

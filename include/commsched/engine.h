/// The reference engine: ZeRO-0/1/2/3 data parallelism on the public C ABI.
///
/// The caller describes a model (model.h), makes a step plan of it
/// (step_plan.h), and calls begin/end around each pass of a module (pass.h);
/// the engine runs the plan on one rank. Library: libcommsched_engine.
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
/// The other stages have evaluations, too, so that one program fits all. With
/// `uneven_evaluations` one may be several forwards, on each rank another
/// number.
///
/// On a device (commsched_context_device()) all of the engine's memory is the
/// device's. Calls of a step enqueue on `compute_stream` and on streams of the
/// library's own, and do not wait but for step_begin, which keeps the host at
/// most three steps ahead: where a call is said below to block until something
/// is there, the stream does. The device decides whether a step is skipped.
/// What ends training (`max_skipped_steps`, learning rates that differ) is
/// found when the host hears of it, up to three steps later or in drain; the
/// device steps no weight after the last skipped step that is allowed. Not
/// there yet: `optimizer_pool`, `gradient_pool`, `measure_steps` and
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
#include "commsched/engine_values.h"
#include "commsched/model.h"
#include "commsched/optimizer.h"
#include "commsched/pass.h"
#include "commsched/pool.h"
#include "commsched/step_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What a rank gives an engine, beside the step plan that says what ranks do.
/// What both speak of, such as clipping, must fit.
typedef struct commsched_engine_desc {
  uint64_t struct_size;
  /// What the rank does in a step, of which model, and with which optimizer
  /// (step_plan.h). The engine keeps it.
  const commsched_step_plan_t* step_plan;
  commsched_context_t* context;
  /// Data-parallel ranks, as many as the step plan is for. Where a norm is
  /// computed: all of the world, or `norm_group` says who has the rest of the
  /// model.
  commsched_group_t* group;
  /// Those of the model, commsched_model_add_group(), in the order of their
  /// ids: groups[0] is the group 1. Copied, and each used as `group` is.
  commsched_group_t* const* groups;
  uint64_t num_groups;
  /// Ranks that hold the other parts of the model, and this one, over which the
  /// norm and what it decides go, too: those of tensor parallelism, of a
  /// pipeline, or both; as many as `norm_members` of the step plan. Each
  /// element counts once: a parameter that several of them hold says so
  /// (`replicated_over`), and where there is a norm all ranks of that group are
  /// in this one. No other rank of `group` is in it. All of these ranks take
  /// steps together and have the same `clip_norm`, `loss_scale` and so on,
  /// which they compare: decay, clipping, the loss scale and when steps are
  /// skipped, `option_sets`, and whether steps have flags. A group of this rank
  /// alone: `group` has all of the model, whatever other ranks of the world do.
  /// NULL: `group` is the world, or there is no norm.
  commsched_group_t* norm_group;
  float weight_decay;  ///< For parameters of two or more dimensions.
  /// Of a step plan that `clips`: the largest norm. 0: none, but that of
  /// commsched_engine_update_args_t.
  float clip_norm;
  /// Of a step plan that `scales_loss`, and only then: the first scale, a power
  /// of two from 1 to 2^24. Dynamic loss scaling is for gradients of fp16 above
  /// all. The caller multiplies the loss by what
  /// commsched_engine_loss_scale_address() points to, the optimizer divides
  /// gradients by it. If a reduced gradient is not finite, on any rank, all
  /// skip the step (`max_skipped_steps`), and the scale halves; after
  /// `loss_scale_window` steps in a row without that it doubles, from 1 to
  /// 2^24.
  float loss_scale;
  uint32_t loss_scale_window;  ///< 0: 2000.
  /// So many steps skipped in a row fail the engine on every rank: something
  /// is wrong with the model or its data. 0: 50. A dynamic loss scale skips at
  /// most 24 on its way down. Counted from the last load on.
  uint32_t max_skipped_steps;
  /// 1: forwards may be left out, with their backwards (top of this file). 0:
  /// a call out of order is an error, also on the way to a later module.
  uint32_t allow_skipped_modules;
  /// 1: the first forward says in which order modules run, as after
  /// commsched_engine_record_order(), on all ranks.
  uint32_t record_order;
  uint32_t measure_steps;  ///< Measure ops in this many first steps; 0: none.
  /// On which the model computes, and so do the engine's kernels: the calling
  /// thread (0), or for ranks on a CUDA device a stream of it, on which calls
  /// then enqueue, and do not wait. See "On a device" above.
  commsched_stream_t compute_stream;
  const commsched_engine_kernels_t* kernels;  ///< NULL: all ours. Copied.
  const commsched_engine_memory_t* memory;    ///< NULL: all ours. Copied.
  /// Of a step plan that `offloads`, and only then: where the optimizer's state
  /// lies, with master weights that are kept beside a copy, of each rank in a
  /// pool of its own. A bucket's state is copied to memory for its step and
  /// back, on a worker thread, so that copies run beside compute and
  /// collectives. The table is copied.
  const commsched_pool_t* optimizer_pool;
  commsched_trace_t* trace;  ///< NULL: record nothing.
  /// Of the session that runs the steps, as in commsched_session_desc_t: names
  /// of observer plugins, separated by commas, and where the flight record
  /// goes, a file per rank. NULL: none. Copied.
  const char* observers;
  const char* flight_path;
  int64_t launch_timeout_ns;  ///< Of the session.
  /// Of a step plan that `offloads_gradients`, and only then: where reduced
  /// gradients wait for the optimizer, of each rank in a pool of its own,
  /// beside `optimizer_pool` if there is one. Each bucket is reduced into
  /// memory that buckets take turns in, copied from there on the same worker
  /// thread, and copied back for the norm and for its step; so it is for each
  /// micro-batch in which the bucket is reduced, to be added to. The table is
  /// copied.
  const commsched_pool_t* gradient_pool;
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

/// Creates an engine: allocates all memory that its steps use, compares what
/// the members of the engine's group have, and creates the sessions. Parameters
/// and optimizer state start as zeros.
///
/// Compared are modules and parameters, in order, with names, shapes and uses,
/// what modules have within, and those options that have a say in the results:
/// stage, micro-batches, dtypes, optimizer and its constants, decay, clipping,
/// loss scale, sizes of buckets (docs/engine.md). Engines of other groups, as
/// the halves of a tensor-parallel model, may differ, but for what the members
/// of a `norm_group` decide together.
///
/// A rank that fails alone tells the others: if it fails on one rank it fails
/// on all ranks of the world, at once. Each of them may then create an engine
/// again.
///
/// Ownership: `desc` is read during the call. The engine keeps the step plan
///            and what it needs of context, groups and trace: their handles may
///            be destroyed afterwards, or, with `record_order`, once the order
///            is recorded. What `user` of the kernels, of the pool and of the
///            optimizer points to must outlive the engine. Release with
///            commsched_engine_destroy().
/// Threads:   any; one per rank at a time.
/// Blocks:    until all ranks of the world have called, at most
///            `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, one of `groups` among them, a size of
///                                 a struct that is 0 or unknown; what does not
///                                 fit the step plan, in number, size or
///                                 whether it is there: `group`, `groups`,
///                                 `norm_group`, `clip_norm`, `loss_scale`,
///                                 `optimizer_pool`; an activation without
///                                 memory; a negative or non-finite
///                                 hyper-parameter, a loss scale that is none,
///                                 a pool without a function, a norm with a
///                                 group of some ranks only and no norm_group,
///                                 a rank in both groups, a parameter that is
///                                 replicated over a rank which is not in
///                                 norm_group, half of an allocator,
///                                 a compute stream that is not of the rank's
///                                 device
///            FAILED_PRECONDITION  two ranks differ: names the first difference
///                                 and both ranks' values; another rank cannot
///                                 create its engine, or its plan differs; an
///                                 order that cannot be recorded
///            RESOURCE_EXHAUSTED   more memory than the machine has for all
///                                 ranks on it; no memory
///            UNIMPLEMENTED        something that is not there on a device; a
///                                 build without CUDA's compiler
///            NOT_FOUND            no observer of that name
///            UNAVAILABLE          the device's kernels cannot be loaded; the
///                                 flight record cannot be made
///            and those of commsched_session_create(). On error there is no
///            engine, and `*out_engine` is not written.
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

/// Goes on with another step plan: for passes whose order has changed for good,
/// other limits of memory, another link. It must be for the same state.
///
/// Its model may be another one, which differs in its list of passes
/// (commsched_model_set_passes()) and in hints of cost (`flops`, `priority`)
/// alone: modules, parameters with all that was said of them, their uses, what
/// is recomputed, groups, ops, collectives and activations with their addresses
/// are the same, and were added in the same order.
///
/// Of the options these may differ: `max_live_bytes`, `prefetch_bytes`,
/// `fixed_addresses`, `profile`, `plan` but for `deterministic`, and those that
/// lead to the same buckets, of which the same accumulate over micro-batches,
/// with as many slots for what is offloaded. The optimizer's table stays that
/// of the first plan. A later commsched_engine_record_order() goes by the model
/// and the options of the last one.
///
/// Drains; addresses of gradients may be others afterwards. Collective: all
/// ranks of the world replan between the same steps.
///
/// Ownership: the plan is kept. Context, groups and trace, of which it makes
///            new sessions, must still be there.
/// Threads:   one per engine at a time.
/// Blocks:    as commsched_engine_drain(), and until all ranks of the world
///            have called, at most `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, a plan for another state: names the
///                                 first difference
///            RESOURCE_EXHAUSTED   more memory than the machine has for all
///                                 ranks on it; no memory
///            FAILED_PRECONDITION  within a step, or while an order is recorded
///            Nothing has changed then.
///            or the session's first failure, and those of
///            commsched_session_create(), which are final
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_replan(
    commsched_engine_t* engine, const commsched_step_plan_t* step_plan);

/// How a step differs from the planned one.
typedef struct commsched_step_desc {
  uint64_t struct_size;
  /// Micro-batches that come, of those planned: passes of the others run empty,
  /// and their gradients are zeros. 0: all. Each rank for itself, but ranks
  /// whose modules exchange something, such as stages, have as many.
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
/// The first one of an engine, after values were set that several ranks store,
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
/// BACKWARD_WEIGHT. Between the passes of a step there may be NO_GRAD of which
/// the plan does not know: of a module without ops within whose parameters are
/// not gathered (stages 0 to 2) and, in stages 1 and 2, have arrived, as after
/// a drain or a planned pass that reads them, or are frozen. A BACKWARD or
/// BACKWARD_WEIGHT zeroes the gradient buckets that it is the first of this
/// step to touch, or of this micro-batch, if they are reduced in each; to those
/// it first adds what the previous reduction has left.
///
/// Ownership: `pass` is read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    until the gathers of its buckets are complete, and of those of
///            modules that were left out before it; until memory of gradients
///            is free of the previous use.
/// Errors:    INVALID_ARGUMENT     NULL, an unknown kind
///            FAILED_PRECONDITION  a call out of order, as step_begin; a
///                                 NO_GRAD that the plan does not know and that
///                                 cannot come here: says why; a bucket that
///                                 does not cover the values of the last step
///                                 (I12)
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
///                                 a module that uses the parameter; it was
///                                 ready or absent in this pass before
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
///                                 step plan is 0; it was ready in
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
///                                 step plan is 0; it was ready or
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
/// Collectives within modules go with what the memory of their activations
/// holds. Ranks that receive it, such as other stages, cancel the step, too, or
/// this rank cancels it with COMMSCHED_CANCEL_ALL.
///
/// With COMMSCHED_CANCEL_ALL every rank learns in its update that the step is
/// cancelled: weights, the optimizer's state, its number of steps and the loss
/// scale stay as they are, and the step counts among those that were skipped.
/// The ranks tell each other with `cancel_all` or `absent_gradients` of the
/// step plan, also ranks of `norm_group`; without them with the
/// norm, if they exchange one and it was not read.
///
/// In a forward that records the order (commsched_engine_record_order()) the
/// modules that it has not begun come in the order planned before; if the other
/// ranks then record another one, all of them fail as they do there.
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
/// the last step, which update has computed, or where all ranks have cancelled
/// that, of the last one before, 0 if there is none. Not finite if a gradient
/// is not.
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
/// Errors:    FAILED_PRECONDITION  within a step
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
/// With `uneven_evaluations` of the step plan as many forwards of
/// all modules follow as the rank likes, or none: the first pass of the next
/// one ends the one before. Modules that exchange something within do so with
/// ranks that have as many.
///
/// Threads:   one per engine at a time.
/// Blocks:    as commsched_engine_drain().
/// Errors:    FAILED_PRECONDITION  a call out of order, as step_begin
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_evaluation_begin(commsched_engine_t* engine);

/// Ends the evaluation. With `uneven_evaluations`, in stage 3 or where modules
/// exchange something, this rank takes part in the gathers of the others until
/// all of them have ended theirs.
///
/// Threads:   one per engine at a time.
/// Blocks:    never; with `uneven_evaluations` until all members of the
///            engine's group have called, where evaluations are collective.
/// Errors:    as step_begin
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_evaluation_end(commsched_engine_t* engine);

/// Fails steps and evaluations with ABORTED and `reason` on every rank, as
/// commsched_session_abort() does for one session.
///
/// Ownership: `reason` is copied; NULL is an empty one.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_engine_abort(commsched_engine_t* engine,
                                          const char* reason);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ENGINE_H_

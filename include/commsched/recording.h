/// The recording: a program that calls eagerly, in its own order, and gets a
/// plan.
///
/// The program declares its buffers, compute ops and collectives once, and then
/// runs step after step: `before` and `after` around each op, `submit` for each
/// collective, as it would call a collective library. The first steps are
/// recorded, each collective running at once and to its end. When all ranks
/// have recorded the same steps, these are frozen into a plan, and from then on
/// the same calls replay it at the cost of a session's.
///
/// A frozen step that is called differently, on one rank or on all, never
/// changes what is launched. Ops run all the same; a collective that is not
/// submitted goes without the rank's data, and one that is not in the plan, or
/// has gone already, is refused (docs/recording.md). The rank logs what went
/// without its data; all ranks learn of it one step later, on a device four,
/// and record the segment again. In a strict recording the first call that
/// differs is refused.
///
/// On a context with a device, lanes are its streams or the caller, and memory
/// is the device's.
///
/// Ids stay valid for the life of the recording.
#ifndef COMMSCHED_RECORDING_H_
#define COMMSCHED_RECORDING_H_

#include <stdint.h>
#include <string.h>

#include "commsched/completions.h"
#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/group.h"
#include "commsched/plan.h"
#include "commsched/session.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/trace.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_recording commsched_recording_t;

typedef struct commsched_recording_desc {
  uint64_t struct_size;
  commsched_context_t* context;
  commsched_group_t* const* groups;  ///< By group id; axes differ.
  /// As commsched_plan_build(), for the backend of `context` and, unless
  /// `host_of_rank` is given, for the hosts of its ranks.
  const commsched_plan_options_t* options;
  const commsched_cost_profile_t* profile;  ///< Without `op_cost_ns`.
  const commsched_stream_t* lanes;  ///< By compute lane; NULL: all the caller.
  commsched_trace_t* trace;         ///< NULL: record no times.
  uint32_t num_groups;
  uint32_t num_lanes;
  uint32_t steps_to_record;     ///< Equal steps before freezing; 0: 2.
  uint32_t max_recorded_steps;  ///< Then it is frozen or fails; 0: 16.
  int64_t launch_timeout_ns;    ///< As of a session.
  /// 1: the calls of a frozen step must be those recorded. One that is not is
  /// FAILED_PRECONDITION, naming it and the one expected, and changes nothing:
  /// the program can make that one, or abort. What the recorded steps differed
  /// in may differ still. 0: see above. Equal on all ranks.
  uint32_t strict;
  /// Who makes progress on launches, as of a session. CALLER: all lanes must be
  /// the caller or streams of the device; a call that waits drives,
  /// commsched_recording_wait() too.
  commsched_progress_t progress;
  /// Where the recording tells which of its submissions have finished; NULL:
  /// nowhere. Kept alive.
  commsched_completions_t* completions;
  uint64_t key;  ///< What its completions call the recording.
} commsched_recording_desc_t;

static inline commsched_recording_desc_t commsched_recording_desc_init(void) {
  commsched_recording_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// How a collective is treated, or'ed.
enum {
  /// Planned even if no recorded step submits it; behind the op declared before
  /// it.
  COMMSCHED_RECORDING_ALTERNATIVE = 1,
  /// May be launched before it is submitted, as soon as the plan has its input
  /// ready: what a gather of parameters wants, so that it runs ahead. A rank
  /// that does not submit it sends what the input holds and gets the result.
  COMMSCHED_RECORDING_EARLY = 2,
  /// Of a collective on LATE_BOUND buffers: each submit tells how much it
  /// moves,
  /// equal on the members of the group. Such a collective cannot go without
  /// this rank's data, since the others' counts are not known: a call that
  /// would
  /// make it do so is refused. Not with ALTERNATIVE.
  COMMSCHED_RECORDING_COUNTS = 4
};

/// Creates a recording. Local: ranks meet in their first step_begin, with equal
/// declarations. If it fails on one rank, the others learn that there, at once,
/// and every rank has to destroy what it has and create again. The exception is
/// as with commsched_session_create(): a call that belongs to no rank.
///
/// Ownership: groups, trace and context are kept alive; streams must outlive
///            the recording. Release with commsched_recording_destroy().
/// Threads:   one thread per rank.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, a group or trace of another context, a
///                              negative timeout, `max_recorded_steps` below
///                              `steps_to_record`, measured op costs, `strict`
///                              above 1, a progress that is none, a lane that
///                              is a HOST stream where progress is the
///                              caller's, or a stream of another kind than the
///                              context's device has, and
///                              those of commsched_plan_build()
///            ALREADY_EXISTS    two groups on one axis
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_create(const commsched_recording_desc_t* desc,
                           commsched_recording_t** out_recording);

/// Drains and releases everything. Destroyed within a step, it aborts instead.
/// Accepts NULL.
///
/// Threads:   any; no other call of the recording may be running.
/// Blocks:    as commsched_session_destroy().
/// Since:     0.1
COMMSCHED_API void commsched_recording_destroy(
    commsched_recording_t* recording);

/// Names a part of the step that is recorded again as a whole. Segment 0 is
/// there from the start.
///
/// Threads:   between steps, one thread.
/// Errors:    INVALID_ARGUMENT     NULL
///            ALREADY_EXISTS       another segment is called `name`
///            FAILED_PRECONDITION  within a step
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_recording_add_segment(
    commsched_recording_t* recording, const char* name, uint32_t* out_segment);

/// Declares a buffer. BOUND: `address` is its memory. LATE_BOUND: its memory
/// moves; `address` is NULL, and each submit of a collective that uses the
/// buffer says where it is (commsched_recording_submit_bound()). Any op may
/// access it, as a whole: accesses order ops as those of other buffers do, and
/// need not be of the memory that a collective binds.
///
/// Ownership: the memory is the caller's and must outlive the recording, if it
///            is BOUND.
/// Threads:   between steps, one thread.
/// Errors:    as commsched_graph_add_buffer(), and
///            INVALID_ARGUMENT     OWNED; `address` NULL or misaligned, if
///                                 BOUND; not NULL, if LATE_BOUND
///            FAILED_PRECONDITION  within a step
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_recording_add_buffer(
    commsched_recording_t* recording, const commsched_buffer_desc_t* desc,
    void* address, commsched_buffer_id_t* out_buffer);

/// Declares a compute op. It has no explicit dependencies: the program's order
/// and the accesses say all.
///
/// Threads:   between steps, one thread.
/// Errors:    as commsched_graph_add_compute(), and
///            INVALID_ARGUMENT     `after`; a lane that was not given
///            NOT_FOUND            no such segment
///            FAILED_PRECONDITION  within a step
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_recording_add_compute(
    commsched_recording_t* recording, const commsched_compute_desc_t* desc,
    uint32_t segment, commsched_op_id_t* out_op);

/// Declares a collective; `flags` are COMMSCHED_RECORDING_..., or'ed.
///
/// Threads:   between steps, one thread.
/// Errors:    as commsched_graph_add_collective(), and
///            INVALID_ARGUMENT     `after`, unknown flags; EARLY with a
///                                 LATE_BOUND buffer, COUNTS without one
///            UNIMPLEMENTED        SEND, RECV
///            NOT_FOUND            no such segment
///            FAILED_PRECONDITION  within a step
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_recording_add_collective(
    commsched_recording_t* recording, const commsched_collective_desc_t* desc,
    uint32_t segment, uint32_t flags, commsched_op_id_t* out_op);

/// Takes an op or a collective away, so that the program can be declared anew
/// between two steps without a recording of its own: what it no longer has is
/// removed, what is new is added. Names of what was removed are free again; ids
/// are not used a second time.
///
/// All ranks remove and move the same between the same two steps, and then add
/// the same; in the next step_begin they compare. The plan, if there is one, is
/// given up, and the steps from there on are recorded as at first, with the
/// communicators of the recording.
///
/// Threads:   between steps, one thread.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            NOT_FOUND            an unknown id, or one removed before
///            FAILED_PRECONDITION  within a step
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_recording_remove_op(
    commsched_recording_t* recording, commsched_op_id_t op);

/// Takes a buffer away: as commsched_recording_remove_op(). The caller's memory
/// is free once the next step has begun, or after commsched_recording_drain().
///
/// Threads:   between steps, one thread.
/// Blocks:    never.
/// Errors:    as commsched_recording_remove_op(), and
///            FAILED_PRECONDITION  an op accesses it (named)
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_recording_remove_buffer(
    commsched_recording_t* recording, commsched_buffer_id_t buffer);

/// Says that a BOUND buffer is at `address` from the next step on. All ranks
/// call it, also those whose memory stays, as with
/// commsched_recording_remove_op(): memory that moves often is LATE_BOUND.
///
/// Ownership: as commsched_recording_add_buffer(). The memory before is free
///            once the next step has begun.
/// Threads:   between steps, one thread.
/// Blocks:    never.
/// Errors:    as commsched_recording_remove_op(), and
///            INVALID_ARGUMENT  `address` NULL or misaligned; a LATE_BOUND
///                              buffer
/// Since:     0.2
COMMSCHED_API commsched_status_t
commsched_recording_move_buffer(commsched_recording_t* recording,
                                commsched_buffer_id_t buffer, void* address);

/// Begins a step.
///
/// Threads:   one at a time, as all calls of a step: their order is the
///            program's.
/// Blocks:    the first one, and the first after something was removed or
/// moved,
///            until all ranks have called.
/// Errors:    INVALID_ARGUMENT     NULL; two buffers that overlap, as with
///                                 commsched_session_create()
///            FAILED_PRECONDITION  the previous step has not ended; other ranks
///                                 record another number of steps, or strictly;
///                                 a group differs between its members (named);
///                                 ranks that removed, moved or added other
///                                 things;
///                                 another rank was refused its recording
///                                 (named)
///            ABORTED              another rank aborted or destroyed its
///                                 recording (named)
///            DEADLINE_EXCEEDED    not all ranks came
///            or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_step_begin(commsched_recording_t* recording);

/// Ends a step. Frozen ops that were not called are skipped, and collectives
/// that were not submitted go without this rank's data.
///
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    until every rank has ended the step before; at the end of
///            recorded steps, until all ranks have come.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  no step has begun; an op without its
///                                 `after` (named); a strict step that lacks a
///                                 call (named); at the limit, ranks that
///                                 recorded different steps: names the first
///                                 difference
///            ABORTED              another rank aborted or destroyed its
///                                 recording (named)
///            and those of commsched_plan_build() and
///            commsched_session_create() or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_step_end(commsched_recording_t* recording);

/// As commsched_session_before(), in any order. An op may be called several
/// times in a step, each after the other.
///
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    as commsched_session_before(). An op that is not where the plan
///            has it waits for all that is in flight.
/// Errors:    INVALID_ARGUMENT     NULL, not a compute op, not the stream of
///                                 its lane
///            UNAVAILABLE          as commsched_session_before()
///            FAILED_PRECONDITION  outside a step; no `after` since its last
///                                 `before`; not where the plan has it, and
///                                 strict or in conflict with an early
///                                 collective that has gone; strict, and a
///                                 collective (named) that is not submitted
///                                 would have to go first
///            or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_before(commsched_recording_t* recording,
                           commsched_op_id_t op, commsched_stream_t stream);

/// As commsched_session_after().
///
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    while recording, and for an op that is not where the plan has it,
///            until the work is done.
/// Errors:    INVALID_ARGUMENT     as commsched_recording_before()
///            FAILED_PRECONDITION  no `before`
///            or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_after(commsched_recording_t* recording,
                          commsched_op_id_t op, commsched_stream_t stream);

/// Submits a collective: what was called before it is what it reads. Its result
/// is there for the ops called after it.
///
/// The recording's completions, if it has been given some, tell of each
/// submission that returned OK, once: by its number among these, 1, 2, 3, ...,
/// and the collective (commsched_completion_t). Then
/// commsched_recording_wait() would not wait, and on a device the result is in
/// place for whoever enqueues. What was left out of a step is not told of.
///
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    while recording, until it is complete; else never, unless calls
///            before it came out of the plan's order.
/// Errors:    INVALID_ARGUMENT     NULL, not a collective
///            FAILED_PRECONDITION  outside a step; not planned, gone without
///                                 this rank's data in this step, or not where
///                                 a strict step has it: named, does not
///                                 stick; while recording, another rank of the
///                                 group submits something else; it uses a
///                                 LATE_BOUND buffer
///            RESOURCE_EXHAUSTED   no room in the completions; does not stick
///            or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_recording_submit(
    commsched_recording_t* recording, commsched_op_id_t collective);

/// commsched_recording_submit() of a collective on LATE_BOUND buffers: says
/// where they are for this one. What it is bound to holds for no other
/// submission, of the same collective neither. As long as declared, unless the
/// collective tells its COUNTS: then `count` and `counts` are this
/// submission's.
///
/// If this rank leaves the collective out of a step, zeros of the declared
/// length go in its place, from memory of the recording's own: what was bound
/// before is neither read nor written.
///
/// Shape:     each LATE_BOUND buffer of the collective, once, in memory that no
///            other buffer has.
/// Ownership: `bindings` and their `counts` are read during the call. The
///            memory must stay until the collective is complete:
///            commsched_recording_wait(), a `before` that waits for it, or
///            commsched_recording_buffer_release().
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    as commsched_recording_submit().
/// Errors:    as commsched_recording_submit(), and
///            INVALID_ARGUMENT     a buffer that the collective does not use or
///                                 that is not LATE_BOUND, one given twice or
///                                 not at all, a count other than, or with
///                                 COUNTS above, the declared one, counts that
///                                 the collective cannot use, memory of another
///                                 buffer. Nothing has changed then.
///            FAILED_PRECONDITION  while recording, another rank of the group
///                                 tells other counts (named)
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_recording_submit_bound(
    commsched_recording_t* recording, commsched_op_id_t collective,
    const commsched_late_binding_t* bindings, uint32_t num_bindings);

/// As commsched_session_buffer_release(): makes `stream` wait until no
/// collective that was submitted uses the memory of `buffer` any more.
///
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    as commsched_session_buffer_release(); while recording, never.
/// Errors:    INVALID_ARGUMENT  NULL, not a stream
///            NOT_FOUND         an unknown id
///            UNAVAILABLE       a collective that uses it was submitted, and
///            its
///                              launch waits for what the program has yet to
///                              call (named): release it later
///            or the recording's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_recording_buffer_release(
    commsched_recording_t* recording, commsched_buffer_id_t buffer,
    commsched_stream_t stream);

/// Waits until `collective`, as it was submitted last in the step that began
/// last, is complete, up to `timeout_ns`. 0: looks once. INT64_MAX: until the
/// recording's own deadline, which fails it.
///
/// For threads that wait beside the program, as a framework's futures do: the
/// wait has no place in the program's order, which goes on meanwhile. What the
/// plan launches together with a collective that is still to be submitted, or
/// behind one, is not complete before that has been submitted. A program that
/// needs a result in the middle of a step declares an op that reads it.
///
/// Threads:   any number, beside a call of the step and of each other.
/// Blocks:    up to `timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, not a collective, `timeout_ns` below 0
///            FAILED_PRECONDITION  it has not been submitted in the step that
///                                 began last (named), or its submission failed
///            DEADLINE_EXCEEDED    it is not complete: names what it waits for;
///                                 it may be waited for again
///            or the recording's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t
commsched_recording_wait(commsched_recording_t* recording,
                         commsched_op_id_t collective, int64_t timeout_ns);

/// As commsched_session_drain().
///
/// Threads:   between steps, one thread.
/// Blocks:    yes.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  within a step
///            or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_drain(commsched_recording_t* recording);

/// As commsched_session_abort(). Ranks that wait for each other in a step_begin
/// or step_end, this one among them, stop waiting.
///
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_recording_abort(commsched_recording_t* recording,
                                             const char* reason);

/// Returns the recording's first failure, or COMMSCHED_OK.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            or the recording's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_status(const commsched_recording_t* recording);

typedef uint32_t commsched_recording_phase_t;
enum {
  COMMSCHED_RECORDING_FIRST = 0,  ///< No plan yet.
  COMMSCHED_RECORDING_FROZEN = 1,
  COMMSCHED_RECORDING_AGAIN = 2  ///< The plan runs; a segment is recorded.
};

typedef struct commsched_recording_info {
  uint64_t struct_size;
  commsched_recording_phase_t phase;
  uint32_t segment;  ///< Recorded again, or last.
  uint64_t steps;
  /// Before the first plan, or since something was removed or moved.
  uint64_t steps_recorded;
  uint64_t plans;            ///< Frozen so far.
  uint64_t rerecordings;     ///< Finished.
  uint64_t steps_deviating;  ///< Steps of this rank that were not the plan's.
  /// Collectives that went without this rank's data, over all steps.
  uint64_t collectives_left_out;
  /// The latest step that was not the recorded one on some rank in a way that
  /// is news, and the highest such rank. Equal on all ranks, which know it one
  /// step later, on a device four; `deviating_rank` is -1 before the first.
  uint64_t deviating_step;
  int32_t deviating_rank;
  uint32_t reserved;  ///< 0.
} commsched_recording_info_t;

static inline commsched_recording_info_t commsched_recording_info_init(void) {
  commsched_recording_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Fills `out_info`, made by commsched_recording_info_init().
///
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_recording_get_info(const commsched_recording_t* recording,
                             commsched_recording_info_t* out_info);

/// Hands out the plan that is frozen now: for commsched_plan_explain().
///
/// Ownership: release with commsched_plan_destroy().
/// Threads:   as commsched_recording_step_begin().
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  none is frozen yet
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_recording_plan(
    const commsched_recording_t* recording, commsched_plan_t** out_plan);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_RECORDING_H_

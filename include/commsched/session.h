/// The session: runs a plan, step after step, on one rank.
#ifndef COMMSCHED_SESSION_H_
#define COMMSCHED_SESSION_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/group.h"
#include "commsched/launch_estimate.h"
#include "commsched/plan.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/trace.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_session commsched_session_t;

/// Memory of one BOUND buffer. Never grows.
typedef struct commsched_binding {
  commsched_buffer_id_t buffer;
  uint32_t reserved;  ///< 0.
  void* address;      ///< Aligned to the element size.
  uint64_t bytes;     ///< At least what the buffer needs.
} commsched_binding_t;

/// On which threads launches are issued and get on.
typedef uint32_t commsched_progress_t;
enum {
  /// One of the library's, which all sessions of a rank share: while the caller
  /// computes, too. It sleeps when there is nothing to do. A caller that waits,
  /// or makes launches due, may take its place for a moment: a call of the
  /// backend that does not return then holds the caller.
  COMMSCHED_PROGRESS_THREAD = 0,
  /// The caller's, while it is in a call of a session of the rank: no hand-off
  /// to another thread, which costs more than a small collective where ranks
  /// outnumber cores. While the caller computes only what the transport does by
  /// itself gets on. Who waits polls for some 50 us, yielding, then sleeps.
  COMMSCHED_PROGRESS_CALLER = 1
};

/// Where a session's own memory comes from: its arena, which holds OWNED
/// buffers and what is staged. `allocate` and `release` are given together or
/// not at all; without them memory is the backend's (ncclMemAlloc()), or the
/// device's.
///
/// Called by the thread that creates or destroys the session, never during a
/// step; without a lock of the library's. Functions must not call the library.
typedef struct commsched_allocator {
  uint64_t struct_size;
  void* user;
  /// `bytes`, not 0, on the rank's device, aligned to 256. A failure fails the
  /// session, with its code.
  commsched_status_t (*allocate)(void* user, uint64_t bytes,
                                 void** out_address);
  /// The session does not use it any more, and neither does the device. Not
  /// called for memory that a launch which cannot be ended may still write to:
  /// the log names it.
  void (*release)(void* user, void* address, uint64_t bytes);
  /// (optional) There was no memory (RESOURCE_EXHAUSTED), wherever it comes
  /// from: give back what is cached. It is asked for once more.
  void (*trim)(void* user);
} commsched_allocator_t;

static inline commsched_allocator_t commsched_allocator_init(void) {
  commsched_allocator_t allocator;
  memset(&allocator, 0, sizeof(allocator));
  allocator.struct_size = sizeof(allocator);
  return allocator;
}

typedef struct commsched_session_desc {
  uint64_t struct_size;
  commsched_context_t* context;
  commsched_plan_t* plan;
  commsched_group_t* const* groups;     ///< One per group id of the graph.
  const commsched_binding_t* bindings;  ///< One per BOUND buffer.
  /// Stream of each compute lane; NULL: all are the calling thread. On a CUDA
  /// device CUDA streams of it, or the calling thread; bound buffers are its
  /// memory there.
  const commsched_stream_t* lanes;
  commsched_trace_t* trace;  ///< NULL: record nothing.
  uint32_t num_groups;
  uint32_t num_bindings;
  uint32_t num_lanes;
  uint32_t reserved;  ///< 0.
  /// A launch that is not complete this long after its predecessor fails the
  /// session. Time in which the process did not run (stopped, or frozen with
  /// its machine) does not count. 0: COMMSCHED_TIMEOUT_S, or 600 s. When a
  /// session is created, its communicators have 60 s to connect, or this if it
  /// is less.
  int64_t launch_timeout_ns;
  /// Names of observer plugins (commsched/info.h), separated by commas; NULL:
  /// none. They cannot make a step fail.
  const char* observers;
  /// Where the flight record goes, one file per rank, made or replaced: what
  /// the session did last, left behind also by a process that is killed
  /// (commsched_flight_record_read()). NULL: none. Copied.
  const char* flight_path;
  commsched_progress_t progress;  ///< CALLER: all lanes must be the caller.
  uint32_t reserved2;             ///< 0.
  /// NULL: the library's choice. Copied; `user` must outlive the session.
  const commsched_allocator_t* allocator;
} commsched_session_desc_t;

static inline commsched_session_desc_t commsched_session_desc_init(void) {
  commsched_session_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Binds a plan to memory, streams and communicators.
///
/// Collective: every rank of the world creates its session; all compare the
/// fingerprints of their plans, and the ranks, order and axis of their groups,
/// before any of them returns.
///
/// The plan orders accesses to one buffer. So two buffers must not overlap in
/// memory if ops access both and write one of them. Several sessions may bind
/// the same memory: it is the caller then who keeps their steps apart.
///
/// If it fails on one rank, it fails on all, at once: the others get
/// FAILED_PRECONDITION with the rank and its reason, and every rank has to
/// destroy what it has and create again. The exception is a call that belongs
/// to no rank: a NULL argument or context, a `struct_size` that is not set.
///
/// Ownership: bound memory and streams must outlive the session; plan, groups,
///            trace and context are kept alive by it. Release with
///            commsched_session_destroy().
/// Threads:   one thread per rank.
/// Blocks:    until all ranks have called, at most `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, a group or trace of another context, a
///                                 group of another size than the graph's, a
///                                 buffer unbound, bound twice, too small or
///                                 misaligned, two buffers that overlap (the
///                                 message says in which bytes), a stream of a
///                                 kind that cannot be a lane, a negative
///                                 timeout, a progress that is none, a
///                                 `reserved` that is not 0
///            FAILED_PRECONDITION  another rank's plan differs: the message
///                                 names the first differing op and both
///                                 values; a group differs between its members:
///                                 it names the group, two ranks and what they
///                                 have
///            DEADLINE_EXCEEDED    not all ranks came; names those missing
///            RESOURCE_EXHAUSTED   no memory for the arena, no thread (named)
///            or what the allocator returned
///            NOT_FOUND            no observer or codec of that name
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_create(
    const commsched_session_desc_t* desc, commsched_session_t** out_session);

/// Drains, unless the session has failed, then releases everything. Accepts
/// NULL.
///
/// Threads:   any; no other call of the session may be running.
/// Blocks:    until every launch that is due is complete or has failed. Then
///            ranks that do not answer are waited for until a second after the
///            failure, which all sessions of a rank and the end of its world
///            have in common; kernels of a device, for `launch_timeout_ns`.
/// Since:     0.1
COMMSCHED_API void commsched_session_destroy(commsched_session_t* session);

/// Begins a step.
///
/// Threads:   one, after every call of the previous step has returned.
/// Blocks:    never on the host; on a CUDA device until the step that is three
///            back is complete there, which bounds how far hosts run ahead.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  the previous step has not ended; the stream
///                                 of a lane is capturing; a step is being
///                                 captured (commsched_session_capture_begin())
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_step_begin(commsched_session_t* session);

/// Ends a step: every compute op must have had its `after`.
///
/// Threads:   one, after every other call of the step has returned.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  no step has begun; an op is missing (named)
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_step_end(commsched_session_t* session);

/// Makes `stream` wait for everything that compute op `op` needs.
///
/// Never waits for another host call: if an op that this one depends on, a
/// launch that it needs, or one that must be issued before that, waits for some
/// op to have its `after`, the call came too early. It returns UNAVAILABLE,
/// names that op and changes nothing: call again once that op has had its
/// `after`. A session may fail with that code, too, for good;
/// commsched_session_status() tells.
///
/// Threads:   any, several at once.
/// Blocks:    on a CALLER stream, until the collectives it needs are complete;
///            on a HOST stream, while its capacity is queued; on a CUDA stream
///            never: the stream waits.
/// Errors:    UNAVAILABLE          not yet: waits for an op (named) whose
///                                 `after` is still to come; does not stick
///            FAILED_PRECONDITION  outside a step, `op` a second time in this
///                                 step, a stale buffer version
///            INVALID_ARGUMENT     not a compute op; `stream` is not the stream
///                                 of the op's lane
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_before(commsched_session_t* session, commsched_op_id_t op,
                         commsched_stream_t stream);

/// Records that the work of compute op `op` has been enqueued on `stream`, and
/// issues every launch that becomes due.
///
/// Threads:   any, several at once.
/// Blocks:    on a HOST stream, while its capacity is queued; on others
///            never, but for a driver whose own queue is full.
/// Errors:    FAILED_PRECONDITION  no `before` of `op` in this step, or a
///                                 second `after`
///            INVALID_ARGUMENT     as commsched_session_before()
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_after(commsched_session_t* session, commsched_op_id_t op,
                        commsched_stream_t stream);

/// What a LATE_BOUND buffer is in one step.
typedef struct commsched_late_binding {
  commsched_buffer_id_t buffer;
  uint32_t num_counts;
  void* address;   ///< Aligned to the element size; NULL only if `count` is 0.
  uint64_t count;  ///< Elements, at most what the buffer was declared with.
  /// Of collectives with `counts`: this step's, for all members. NULL: those
  /// that were declared.
  const uint64_t* counts;
} commsched_late_binding_t;

/// commsched_session_after() for an op that writes LATE_BOUND buffers: says
/// where they are in this step, and how long. Collectives of the step read and
/// write there; a side that is not late-bound uses its beginning.
///
/// On error nothing has changed: the call can be made again.
///
/// Shape:     each LATE_BOUND buffer that `op` writes, once, in memory of its
///            own. The members of a group give equal counts, as a backend
///            checks.
/// Ownership: `bindings` and their `counts` are read during the call. The
///            memory must stay until the collectives of the step that use it
///            are complete: commsched_session_buffer_release().
/// Threads:   any, several at once.
/// Blocks:    as commsched_session_after(); also, when the host is 8 steps
///            ahead of a collective on one of the buffers, until that is
///            complete.
/// Errors:    FAILED_PRECONDITION  as commsched_session_after(); a LATE_BOUND
///                                 buffer that `op` writes is missing
///            INVALID_ARGUMENT     as commsched_session_after(); a buffer that
///                                 `op` does not write or that is not
///                                 LATE_BOUND, one given twice, a count above
///                                 the declared one, counts that a collective
///                                 on the buffer cannot use, memory of a BOUND
///                                 or OWNED buffer or of another that is given
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_after_bound(
    commsched_session_t* session, commsched_op_id_t op,
    commsched_stream_t stream, const commsched_late_binding_t* bindings,
    uint32_t num_bindings);

/// Begins a step whose work the caller's streams capture into a CUDA graph.
///
/// `origin` must be capturing already (cudaStreamBeginCapture(), or a
/// framework's way to it), in any mode. From here to
/// commsched_session_capture_end() the calls are those of a step,
/// commsched_session_before() and commsched_session_after(), and what they
/// enqueue goes into the graph: all compute lanes and the library's own streams
/// fork from `origin` here and join it at the end. cudaStreamEndCapture() comes
/// after commsched_session_capture_end(). The graph is to be instantiated with
/// cudaGraphInstantiateFlagUseNodePriority, else launches lose their priority
/// over compute ops. It is then launched as often as there are steps, each time
/// between commsched_session_replay_begin() and commsched_session_replay_end().
///
/// A captured step waits for nothing outside of the graph. Launches of a graph
/// are in order with each other and with other steps, so that a step begins
/// when the one before has ended: every wait of the plan for an earlier step is
/// met. What of the training step lies between the two calls is the caller's
/// choice; where the host has to decide something each step (a norm, a loss
/// scale), the graph ends there.
///
/// Capturing is not a step: nothing is done or counted. It is collective all
/// the same: all ranks capture the same steps in the same order, and launch the
/// graphs of one capture as the same steps, since NCCL demands it. Ranks that
/// are threads of one process capture in the mode
/// cudaStreamCaptureModeThreadLocal.
///
/// A CUDA or NCCL call that fails within the captured step fails the session,
/// and so does a step that ends before all of it is captured: collectives that
/// one rank has captured and another has not cannot be taken back.
///
/// Ownership: graphs, and what was instantiated of them, must be destroyed
///            before the session is, also after a failure: NCCL does not let go
///            of a communicator that a graph uses, and
///            commsched_session_destroy() waits for that up to
///            `launch_timeout_ns`.
/// Threads:   between steps, one thread.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL; `origin` is not a stream of the device
///            FAILED_PRECONDITION  within a step; a step is being captured; no
///                                 step has run yet, which makes what a capture
///                                 cannot; `origin` is not capturing; what a
///                                 graph cannot repeat: a lane that is the
///                                 calling thread, a LATE_BOUND buffer; a lane
///                                 that is the legacy stream or is captured
///                                 into another graph
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_capture_begin(
    commsched_session_t* session, commsched_stream_t origin);

/// Ends a step that is being captured: every compute op must have had its
/// `after`. Whatever it returns, no step is being captured any more.
///
/// Threads:   one, after every other call of the step has returned.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  no step is being captured; an op is missing
///                                 (named), or cudaStreamEndCapture() was
///                                 called before: then there is no graph, and
///                                 the session has failed if a collective was
///                                 captured
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_capture_end(commsched_session_t* session);

/// Begins a step that is one launch of a graph with a captured step
/// (commsched_session_capture_begin()): between this call and
/// commsched_session_replay_end() the caller launches the graph, once, on
/// `stream`, which waits for the step before, however that was run. If
/// cudaGraphLaunch() fails, only commsched_session_abort() is left.
///
/// `launch_timeout_ns` is then of the caller's work as well: the time of the
/// oldest collective that is not known to be complete runs from when the one
/// before it was, or from the end of the step before.
///
/// Ownership: `stream` must outlive the session.
/// Threads:   one, after every call of the previous step has returned.
/// Blocks:    as commsched_session_step_begin().
/// Errors:    INVALID_ARGUMENT     NULL; `stream` is not one of the device
///            FAILED_PRECONDITION  the previous step has not ended; no step has
///                                 been captured, or one is being; `stream` is
///                                 capturing
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_replay_begin(
    commsched_session_t* session, commsched_stream_t stream);

/// Ends a step that is a launch of a graph: the graph has been launched. The
/// step counts as any other from here on.
///
/// Threads:   as commsched_session_replay_begin().
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  commsched_session_replay_begin() has not
///                                 been called
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_replay_end(commsched_session_t* session);

/// Makes `stream` wait until no collective that is due uses `buffer` any more,
/// so that a caching allocator may reuse the memory in the order of `stream`.
///
/// Knows the collectives of steps begun so far that are due; those still to
/// come want the buffer again. After a failure memory is free once the session
/// is destroyed.
///
/// Ownership: a HOST stream must outlive the session.
/// Threads:   any.
/// Blocks:    on a CALLER stream, until the collectives are complete; on a HOST
///            stream, while its capacity is queued.
/// Errors:    INVALID_ARGUMENT     NULL; a buffer that the plan owns; not a
///                                 stream
///            FAILED_PRECONDITION  a step is being captured
///            NOT_FOUND            an unknown id
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_buffer_release(
    commsched_session_t* session, commsched_buffer_id_t buffer,
    commsched_stream_t stream);

/// Runs one compute op of a session-driven step: enqueues the op's work on
/// `stream`. Not COMMSCHED_OK fails the session with that code.
typedef commsched_status_t (*commsched_compute_fn)(void* user,
                                                   commsched_op_id_t op,
                                                   commsched_stream_t stream);

/// Session-driven: runs `num_steps` steps in planned order, calling `fn` for
/// each compute op between its before and after.
///
/// Threads:   between steps, one thread. `fn` is called on it, with no lock
///            held.
/// Blocks:    as the calls it stands for.
/// Errors:    INVALID_ARGUMENT  NULL
///            what `fn` returned, or those of the calls it stands for
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_run(commsched_session_t* session, commsched_compute_fn fn,
                      void* user, uint64_t num_steps);

/// Waits until every launch that is due is complete: what evaluation,
/// checkpoints and host reads do first.
///
/// Threads:   between steps, one thread.
/// Blocks:    yes.
/// Errors:    INVALID_ARGUMENT     NULL
///            FAILED_PRECONDITION  within a step, or one that is being captured
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_drain(commsched_session_t* session);

/// Fails the session with ABORTED and `reason` on every rank (I7). Does nothing
/// if the session is NULL or has failed; a NULL reason is an empty one.
///
/// Ownership: `reason` is copied.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_session_abort(commsched_session_t* session,
                                           const char* reason);

/// Returns the session's first failure, or COMMSCHED_OK.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            or the session's first failure
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_status(const commsched_session_t* session);

/// Address of `buffer` for `op`: fixed for the life of the session, valid to
/// use between that op's before and after.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            NOT_FOUND  an unknown id; `op` declares no access to `buffer`
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_address(commsched_session_t* session, commsched_op_id_t op,
                          commsched_buffer_id_t buffer, void** out_address);

/// Number of steps whose last write to `buffer` is complete (I12): 0 before the
/// first, t after that of step t-1 (steps count from 0).
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            NOT_FOUND         an unknown id
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_buffer_version(
    const commsched_session_t* session, commsched_buffer_id_t buffer,
    uint64_t* out_version);

/// Sets `*out_poisoned` to 1 if the session has failed and `buffer` may hold
/// what the step that failed was to overwrite and did not, or did from such
/// data; else to 0. So it is with what is written by work of worker streams
/// that the failure set free before its turn, and by work whose data that may
/// have overwritten. Weights made of a poisoned buffer are wrong: optimizers
/// and checkpoints must refuse it.
///
/// Threads:   any; after a failure, once no other call is running.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            NOT_FOUND         an unknown id
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_buffer_poisoned(
    const commsched_session_t* session, commsched_buffer_id_t buffer,
    uint32_t* out_poisoned);

typedef struct commsched_session_counters {
  uint64_t struct_size;
  uint64_t steps;
  uint64_t launches;
  uint64_t collectives;  ///< Members of launches.
  uint64_t bytes;        ///< Payload of launches, summed.
  uint64_t peak_launches_in_flight;
  uint64_t peak_bytes_in_flight;
  /// What I6 forbids in a steady state. The first three are of the whole
  /// process, all its ranks and sessions: compare two readings.
  uint64_t lock_contentions;
  uint64_t events_created;
  uint64_t streams_created;
  uint64_t registrations;
  /// Time in which the next launch could not go out, and nothing else got on,
  /// by cause: it was not due; something it waits for was not complete; the
  /// window was full; the backend took no more.
  int64_t stall_due_ns;
  int64_t stall_wait_ns;
  int64_t stall_window_ns;
  int64_t stall_requests_ns;
  /// Memory: the session's arena; what the backend was told of, in which the
  /// arena is counted again; how often it was asked for once more, after
  /// commsched_allocator_t::trim.
  uint64_t arena_bytes;
  uint64_t registered_bytes;
  uint64_t allocation_retries;
  /// Of all sessions of the rank: the most that the backend has held on the
  /// device for itself, and allocations that launches made there, each of which
  /// may have waited for the device: none in a steady state.
  uint64_t backend_peak_bytes;
  uint64_t launch_allocations;
} commsched_session_counters_t;

static inline commsched_session_counters_t commsched_session_counters_init(
    void) {
  commsched_session_counters_t counters;
  memset(&counters, 0, sizeof(counters));
  counters.struct_size = sizeof(counters);
  return counters;
}

/// Fills `out_counters`, made by commsched_session_counters_init().
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_get_counters(const commsched_session_t* session,
                               commsched_session_counters_t* out_counters);

/// The session's counters, stalls, peaks and failure in the text format of
/// Prometheus, to be scraped while steps run. docs/trace_formats.md lists them;
/// each has the label `rank`.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT    NULL
///            RESOURCE_EXHAUSTED  no memory for the text
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_metrics_text(
    const commsched_session_t* session, char** out_text);

/// Fills `out_estimate`, made by commsched_launch_estimate_init(), with how the
/// backend does launch `launch` of the plan, in key order from 0, and what it
/// takes that to need.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            OUT_OF_RANGE      the plan has no such launch
///            UNIMPLEMENTED     the backend does not tell; a launch on
///                              LATE_BOUND buffers, whose size each step tells
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_launch_estimate(
    const commsched_session_t* session, uint64_t launch,
    commsched_launch_estimate_t* out_estimate);

/// Explains the session's plan as commsched_plan_explain() does and, in TEXT
/// and JSON, how the backend does each launch, with its prediction beside the
/// one that the plan was made by. A backend that does not tell is left out.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, an unknown format
///            or why the backend would refuse a launch
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_session_explain(const commsched_session_t* session,
                          commsched_format_t format, char** out_text);

/// Adds up, per op, the thread-CPU ns spent by the library on collective `op`
/// (copies and reductions) since the session was created: what a runner hands
/// to commsched_plan_predict().
///
/// Shape:     `out_ns` holds `num_ops` values, one per op of the graph; compute
///            ops get 0.
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, another number of ops than the graph's
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_collective_cpu_ns(
    const commsched_session_t* session, int64_t* out_ns, uint64_t num_ops);

/// What encoding did to the data that this rank sent (commsched_plan_options_t:
/// codec): the largest error, and the root of the mean squared error over that
/// of the data. Infinite where something was not finite. Of a launch: of all
/// collectives that travelled together.
typedef struct commsched_codec_error {
  uint64_t struct_size;
  uint64_t launches;  ///< Measured so far.
  double max_abs;     ///< Of the latest.
  double rms_relative;
  double worst_max_abs;  ///< Of all.
  double worst_rms_relative;
} commsched_codec_error_t;

static inline commsched_codec_error_t commsched_codec_error_init(void) {
  commsched_codec_error_t error;
  memset(&error, 0, sizeof(error));
  error.struct_size = sizeof(error);
  return error;
}

/// Fills `out_error`, made by commsched_codec_error_init(), for the launches of
/// collective `op`. Exact after commsched_session_drain().
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            NOT_FOUND         `op` does not travel through a codec
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_session_codec_error(
    const commsched_session_t* session, commsched_op_id_t op,
    commsched_codec_error_t* out_error);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_SESSION_H_

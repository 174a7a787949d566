/// The session: runs a plan, step after step, on one rank.
#ifndef COMMSCHED_SESSION_H_
#define COMMSCHED_SESSION_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/group.h"
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
  /// CALLER: all lanes must be the caller or streams of the device.
  commsched_progress_t progress;
  uint32_t reserved2;  ///< 0.
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

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_SESSION_H_

/// Steps of a session in CUDA graphs: captured once, replayed as often as there
/// are steps.
#ifndef COMMSCHED_SESSION_CAPTURE_H_
#define COMMSCHED_SESSION_CAPTURE_H_

#include "commsched/export.h"
#include "commsched/session.h"
#include "commsched/status.h"
#include "commsched/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

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
/// Other sessions launch nothing on lanes of the device that this one has,
/// until the latter call: other threads wait, and this thread must not launch
/// there.
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
///                                 capturing; this thread is between the two
///                                 calls of another session on those lanes
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

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_SESSION_CAPTURE_H_

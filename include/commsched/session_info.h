/// What a session tells of itself: counters, metrics, how its backend does
/// launches, what encoding did to data.
#ifndef COMMSCHED_SESSION_INFO_H_
#define COMMSCHED_SESSION_INFO_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/launch_estimate.h"
#include "commsched/plan.h"
#include "commsched/session.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#endif  // COMMSCHED_SESSION_INFO_H_

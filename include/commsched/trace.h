/// Trace: when ops and launches ran, and the overlap that follows from it.
#ifndef COMMSCHED_TRACE_H_
#define COMMSCHED_TRACE_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/plan.h"
#include "commsched/status.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A fixed ring of records of one rank. Recording takes no lock and allocates
/// nothing; the oldest records are overwritten.
typedef struct commsched_trace commsched_trace_t;

/// One step of one rank. Times in ns. A communication interval starts when its
/// lane's waits are met and ends when the launch is complete.
typedef struct commsched_step_metrics {
  uint64_t struct_size;
  uint64_t step;
  int64_t step_ns;     ///< From this step's begin to the next step's begin.
  int64_t compute_ns;  ///< Union of compute intervals.
  int64_t comm_ns;     ///< Union of communication intervals.
  int64_t exposed_ns;  ///< |comm \ compute|
  uint64_t num_launches;
  uint64_t num_collectives;
  uint64_t peak_bytes_in_flight;
} commsched_step_metrics_t;

static inline commsched_step_metrics_t commsched_step_metrics_init(void) {
  commsched_step_metrics_t metrics;
  memset(&metrics, 0, sizeof(metrics));
  metrics.struct_size = sizeof(metrics);
  return metrics;
}

/// What the exposed communication of one step of one rank is owed to; the parts
/// add up to `exposed_ns`. What each stands for: docs/blame.md.
typedef struct commsched_blame {
  uint64_t struct_size;
  uint64_t step;
  int64_t exposed_ns;     ///< That of the step's metrics.
  int64_t cap_ns;         ///< The window was full.
  int64_t dependency_ns;  ///< What it reads was made late.
  int64_t order_ns;       ///< An earlier key went first.
  int64_t link_ns;        ///< On the wire, or waiting for it.
  int64_t straggler_ns;   ///< Another rank was late.
} commsched_blame_t;

static inline commsched_blame_t commsched_blame_init(void) {
  commsched_blame_t blame;
  memset(&blame, 0, sizeof(blame));
  blame.struct_size = sizeof(blame);
  return blame;
}

/// Creates a trace for sessions and channels of `context`; one session at a
/// time writes to it, and any channels beside it.
///
/// Ownership: release with commsched_trace_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `capacity` not in 1024..2^26 records
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_trace_create(commsched_context_t* context, uint64_t capacity,
                       commsched_trace_t** out_trace);

/// Gives up the handle; sessions keep the trace they write to. Accepts NULL.
///
/// Threads:   any, once per handle.
/// Since:     0.1
COMMSCHED_API void commsched_trace_destroy(commsched_trace_t* trace);

/// Returns the number of complete steps that the ring still holds.
///
/// Reads the ring: about 100 ns per record.
///
/// Threads:   no session may be running a step.
/// Since:     0.1
COMMSCHED_API uint64_t
commsched_trace_num_steps(const commsched_trace_t* trace);

/// Metrics of the `index`-th complete step held, 0 = oldest, as of the last
/// commsched_trace_num_steps(). Fills `out_metrics`, made by
/// commsched_step_metrics_init().
///
/// Threads:   no session may be running a step.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            OUT_OF_RANGE      `index` >= commsched_trace_num_steps()
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_trace_step_metrics(const commsched_trace_t* trace, uint64_t index,
                             commsched_step_metrics_t* out_metrics);

/// Metrics of one of the last few steps, by its number, also while the session
/// runs: for a log that keeps up. Launches that are not complete are not in
/// them; ask after the next step has ended, since launches may run on under it.
/// The last step lasts until the last record held. Fills `out_metrics`, made by
/// commsched_step_metrics_init().
///
/// Reads the records of about twelve steps.
///
/// Threads:   the session's rank's, or when no session runs a step.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            NOT_FOUND         no begin of step `step` among the last ones
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_trace_recent_step(const commsched_trace_t* trace, uint64_t step,
                            commsched_step_metrics_t* out_metrics);

/// Blame of the `index`-th complete step held, as
/// commsched_trace_step_metrics() counts them. Fills `out_blame`, made by
/// commsched_blame_init().
///
/// Threads:   no session may be running a step.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            OUT_OF_RANGE      `index` >= commsched_trace_num_steps()
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_trace_step_blame(const commsched_trace_t* trace, uint64_t index,
                           commsched_blame_t* out_blame);

/// Says which launches were exposed in the complete steps held, and why, and
/// which rank was late, if that is known: a table (TEXT, mean per step), or
/// steps and totals per launch (JSON, docs/blame.md).
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   no session may be running a step.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, a format other than TEXT and JSON
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_trace_explain(
    const commsched_trace_t* trace, commsched_format_t format, char** out_text);

/// Writes the records as a Chrome trace in Kineto's dialect, one file per rank,
/// which Holistic Trace Analysis reads unchanged.
///
/// Threads:   no session may be running a step.
/// Blocks:    on the file system.
/// Errors:    INVALID_ARGUMENT  NULL
///            UNAVAILABLE       the file cannot be written
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_trace_write_kineto(const commsched_trace_t* trace, const char* path);

/// Writes the records as a Perfetto trace (`.pftrace`), in nanoseconds, one
/// file per rank; files of several ranks put behind one another are one trace.
///
/// Threads:   no session may be running a step.
/// Blocks:    on the file system.
/// Errors:    INVALID_ARGUMENT  NULL
///            UNAVAILABLE       the file cannot be written
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_trace_write_perfetto(
    const commsched_trace_t* trace, const char* path);

/// Writes what the records say, summed up, in the text format of Prometheus:
/// times, bytes and members of launches by collective and axis, overlap.
///
/// Threads:   no session may be running a step.
/// Blocks:    on the file system.
/// Errors:    INVALID_ARGUMENT  NULL
///            UNAVAILABLE       the file cannot be written
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_trace_write_metrics(const commsched_trace_t* trace, const char* path);

/// Reads a flight record (commsched_session_desc_t::flight_path) as text: whose
/// it is, the launches in flight, the failure, and the last events with the
/// time before the last of them.
///
/// May be called while the session writes: what is half written is left out.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    on the file system.
/// Errors:    INVALID_ARGUMENT  NULL, not a flight record
///            UNAVAILABLE       the file cannot be read
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_flight_record_read(const char* path,
                                                              char** out_text);

/// Compares flight records of ranks of one job: where each has got to, the
/// first launch that is not complete on all, who has not issued it, and the
/// launches around it. Launches of a plan are counted through all steps; ranks
/// are compared by that number among those with one plan. TEXT or JSON
/// (docs/trace_formats.md).
///
/// A launch that a record does not hold any more, as its ring keeps the last
/// 8192 events, counts as complete.
///
/// Shape:     `paths` holds `num_paths` paths, of one record per rank. One
/// alone
///            is compared with nobody: where it has got to.
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    on the file system.
/// Errors:    INVALID_ARGUMENT  NULL, no path, not a flight record, two records
///                              of one rank, a format other than TEXT and JSON
///            UNAVAILABLE       a file cannot be read
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_flight_records_compare(const char* const* paths, uint32_t num_paths,
                                 commsched_format_t format, char** out_text);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_TRACE_H_

#ifndef COMMSCHED_SRC_TRACE_METRICS_H_
#define COMMSCHED_SRC_TRACE_METRICS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/blame.h"
#include "trace/recorder.h"

namespace commsched {

// Fields: include/commsched/trace.h.
struct StepMetrics {
  uint64_t step = 0;
  int64_t step_ns = 0, compute_ns = 0, comm_ns = 0, exposed_ns = 0;
  uint64_t num_launches = 0, num_collectives = 0, peak_bytes_in_flight = 0;
};

// The time in which something of these kinds is under way.
BusyTime BusyTimeOf(const std::vector<Record>& records,
                    std::initializer_list<RecordKind> kinds);

// Of each complete step held: one whose begin and whose successor's begin are
// both held. A step's window is [its begin, the next begin). Times are those of
// the intervals that lie in the window, cut at its edges: of several in flight
// at once each instant counts once. Launches are counted by the step that they
// belong to, also when they run under the next one. O(n log n).
std::vector<StepMetrics> ComputeStepMetrics(const Recorder& recorder);

// That of one of the last steps, the latest of its number. The last one that
// has begun lasts until the last record held. nullopt: its begin is not held.
// O(records of some steps); may be called while records are added.
std::optional<StepMetrics> ComputeRecentStep(const Recorder& recorder,
                                             uint64_t step);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_METRICS_H_

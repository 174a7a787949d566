#ifndef COMMSCHED_SRC_TRACE_METRICS_H_
#define COMMSCHED_SRC_TRACE_METRICS_H_

#include <cstdint>
#include <vector>

#include "trace/recorder.h"

namespace commsched {

// Fields: include/commsched/trace.h.
struct StepMetrics {
  uint64_t step = 0;
  int64_t step_ns = 0, compute_ns = 0, comm_ns = 0, exposed_ns = 0;
  uint64_t num_launches = 0, num_collectives = 0, peak_bytes_in_flight = 0;
};

// Of each complete step held: one whose begin and whose successor's begin are
// both held. A step's window is [its begin, the next begin). Times are those of
// the intervals that lie in the window, cut at its edges: of several in flight
// at once each instant counts once. Launches are counted by the step that they
// belong to, also when they run under the next one. O(n log n).
std::vector<StepMetrics> ComputeStepMetrics(const Recorder& recorder);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_METRICS_H_

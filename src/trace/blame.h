#ifndef COMMSCHED_SRC_TRACE_BLAME_H_
#define COMMSCHED_SRC_TRACE_BLAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/blame.h"
#include "trace/recorder.h"

namespace commsched {

struct StepBlame {
  uint64_t step = 0;
  Blame blame;  // its total is the step's StepMetrics::exposed_ns
};

// Who is late.
struct Straggler {
  int rank = -1;   // in the world, whom most is owed to; -1: it is not known
  int64_t ns = 0;  // so much
};

// What the exposed communication of a run is owed to (docs/blame.md).
struct RunBlame {
  std::vector<StepBlame> steps;  // those of ComputeStepMetrics, in its order
  std::vector<Blame> launches;   // by launch id, over those steps
  std::vector<Straggler> stragglers;  // likewise
  Straggler straggler;                // of all of them
};

// Each exposed instant belongs to the launch that has been in flight the
// longest. Until all its members have issued it, it is the straggler's; from
// then on it is shared out by what held the launch back. O(n log n).
RunBlame ComputeBlame(const Recorder& recorder);

// The totals by launch, and of all, per step; the greatest first.
std::string BlameText(const Recorder& recorder);
std::string BlameJson(const Recorder& recorder);  // docs/blame.md

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_BLAME_H_

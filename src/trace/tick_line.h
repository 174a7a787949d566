#ifndef COMMSCHED_SRC_TRACE_TICK_LINE_H_
#define COMMSCHED_SRC_TRACE_TICK_LINE_H_

#include <cstdint>
#include <vector>

#include "base/ticks.h"

namespace commsched {

// From ticks to nanoseconds: straight from each anchor to the next, so that it
// is as exact as they are, follows the clock when that is slewed, and never
// runs backwards.
//
// Immutable.
class TickLine {
 public:
  // In any order. With fewer than two, ticks are taken for nanoseconds.
  explicit TickLine(std::vector<TickAnchor> anchors);

  int64_t ToNs(int64_t ticks) const;

 private:
  std::vector<TickAnchor> anchors_;  // growing in both
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_TICK_LINE_H_

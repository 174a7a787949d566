// Pass 0: markers become edges between the ops around them.
#ifndef COMMSCHED_SRC_PLAN_MARKERS_H_
#define COMMSCHED_SRC_PLAN_MARKERS_H_

#include "graph/dependencies.h"

namespace commsched {

// Replaces every path from an op through markers to another op by an edge
// between the two, so that no pass has to know of markers and nobody has to
// call them at run time. A path that crosses the step boundary twice becomes an
// edge of distance 1, which is stronger. The edges are sorted as before; the
// order of the ops, markers included, stays.
//
// A marker with p ops before it and s after it makes p x s edges.
void DissolveMarkers(const Graph& graph, Dependencies* dependencies);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_MARKERS_H_

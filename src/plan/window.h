// Pass 6: the caps on what is in flight, as edges (I3).
#ifndef COMMSCHED_SRC_PLAN_WINDOW_H_
#define COMMSCHED_SRC_PLAN_WINDOW_H_

#include <vector>

#include "plan/edge.h"
#include "plan/plan.h"

namespace commsched {

// For each launch, edges from the launches that must be complete before it may
// start, so that what is issued and not complete stays within max_launches and
// max_bytes; a launch larger than max_bytes waits until the window is empty.
// Launches of the step before count: the window knows no step boundary. In the
// first step edges of distance 1 are satisfied, and the caps hold all the more.
//
// "All launches up to m are complete" takes one edge per communication lane,
// from its last launch up to m, since lanes complete in order. An edge reaches
// back one step at most; where the caps would admit more than a whole step and
// a part of the one before, the edge asks for the first launch of the lane in
// the step before: a little more than needed, never less.
//
// Uses launches (payload, lane) and options of `plan`.
std::vector<Edge> WindowEdges(const Plan& plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_WINDOW_H_

// Pass 7: which edges need an event.
#ifndef COMMSCHED_SRC_PLAN_LANES_H_
#define COMMSCHED_SRC_PLAN_LANES_H_

#include <vector>

#include "absl/types/span.h"
#include "plan/edge.h"
#include "plan/plan.h"
#include "plan/sequence.h"

namespace commsched {

// What Schedule::kSerial adds: each compute op waits for the last launch of
// every lane that is due before it, in its step or else in the step before.
std::vector<Edge> SerialEdges(const Plan& plan);

// Turns the dependencies of `plan`, and `edges`, which other passes ask for,
// into waits, producers, after and needs of its nodes and launches (which are
// empty before), and counts num_waits_implied. Edges of distance 0 must run
// forward in `sequence`.
//
// Every piece of a split collective depends on what the whole does; who depends
// on the whole depends on its last piece, as the pieces complete in order on
// their lane.
//
// Every edge of distance 0 is kept for the host: in `after` and `needs` of a
// compute node, in `producers` of a launch. An event wait is left out where the
// order follows from what docs/happens_before.md lists:
//   - between compute ops of one lane the stream keeps it;
//   - else if a wait or an op before the consumer already knows the producer to
//     be complete. Knowledge is a vector clock with one entry per lane: a
//     prefix of its nodes. A communication lane completes in order, so that
//     knowing one launch is knowing all before it. A compute lane may be called
//     out of planned order, so that an op extends the prefix only if it depends
//     on all of the prefix; any other op is known by a wait of its own.
// Of several edges into a node the latest producer is looked at first, so that
// it may imply the others; those of the graph come before those of the window.
// Last, a wait that another one of the node implies is dropped.
//
// A path from step t to t + d uses nodes of steps t .. t + d only. Hence one
// sweep decides the edges of distance 0, a second one those of distance 1.
void AssignWaits(const Sequence& sequence, absl::Span<const Edge> edges,
                 Plan* plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_LANES_H_

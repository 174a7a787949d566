#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_DOT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_DOT_H_

#include <string>

#include "plan/plan.h"

namespace commsched {

// The plan as a Graphviz digraph: a cluster per lane with its nodes in order, a
// launch as a record of its members that says why it has them, an edge per
// event wait (dashed: of the step before; labelled with its cause unless that
// is a hazard), a dotted one for the op whose `after` makes a launch due.
std::string ExplainDot(const Plan& plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_DOT_H_

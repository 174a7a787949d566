#ifndef COMMSCHED_SRC_PLAN_EDGE_H_
#define COMMSCHED_SRC_PLAN_EDGE_H_

#include "plan/plan.h"

namespace commsched {

// `to` of step t + distance must not start before `from` of step t is complete.
// What the passes ask for; lanes.h decides which edges need an event.
struct Edge {
  NodeRef from;
  NodeRef to;
  int distance = 0;
  WaitCause cause = WaitCause::kHazard;
};

inline NodeRef RefOf(OpId op) {
  return {.kind = NodeRef::Kind::kOp, .index = op.value()};
}
inline NodeRef RefOf(LaunchId launch) {
  return {.kind = NodeRef::Kind::kLaunch, .index = launch.value()};
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EDGE_H_

#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_LAUNCH_REASON_TEXT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_LAUNCH_REASON_TEXT_H_

#include <cstdint>
#include <string>

#include "graph/graph.h"
#include "plan/launch_reason.h"

namespace commsched {

struct Launch;
struct Plan;

// "'rs.3' is of another kind". `limit_bytes`: of kLimit.
std::string EndText(const Graph& graph, LaunchReason::End end, OpId next,
                    OpId needer, uint64_t limit_bytes);

// "alone: with 'rs.3' it would exceed 65536 bytes".
std::string ReasonText(const Plan& plan, const Launch& launch);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_LAUNCH_REASON_TEXT_H_

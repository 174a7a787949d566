#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_EXPLAIN_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_EXPLAIN_H_

#include <string>

#include "plan/explain/backend_report.h"
#include "plan/plan.h"

namespace commsched {

// Tells the plan, with what the backend of a session says of it.
std::string ExplainText(const Plan& plan, const BackendReport& report = {});
std::string ExplainJson(const Plan& plan, const BackendReport& report = {});

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_EXPLAIN_H_

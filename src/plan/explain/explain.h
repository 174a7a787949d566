#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_EXPLAIN_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_EXPLAIN_H_

#include <string>

#include "plan/plan.h"

namespace commsched {

std::string ExplainText(const Plan& plan);
std::string ExplainJson(const Plan& plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_EXPLAIN_H_

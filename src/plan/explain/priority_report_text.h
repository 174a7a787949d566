#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_PRIORITY_REPORT_TEXT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_PRIORITY_REPORT_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "plan/priority_report.h"

namespace commsched {

absl::string_view ChoiceName(PriorityReport::Choice choice);  // "by_need"

// What a prediction of the whole plan knows better: that no step is below
// `bound_ns`, though cores are shared or a chain of dependencies is longer. So
// no order is, and nothing that is predicted.
PriorityReport Bounded(PriorityReport report, int64_t bound_ns);

// "by need: predicted step 4.1 us, as ready 10.2 us; no order is below 4.0 us,
// so priority could gain at most 6.2 us (60.8 %)".
std::string PriorityText(const PriorityReport& report);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_PRIORITY_REPORT_TEXT_H_

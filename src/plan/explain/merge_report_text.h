#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_MERGE_REPORT_TEXT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_MERGE_REPORT_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "plan/merge_report.h"

namespace commsched {

absl::string_view ChoiceName(MergeReport::Choice choice);  // "merged"

// "by cost: predicted step merged 4.1 us, apart 5.0 us".
std::string MergeText(const MergeReport& report);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_MERGE_REPORT_TEXT_H_

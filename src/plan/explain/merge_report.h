#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_MERGE_REPORT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_MERGE_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace commsched {

// What merging by cost found and chose (plan/merge_by_cost.h). Predictions, so
// no part of the fingerprint.
struct MergeReport {
  enum class Choice : uint8_t {
    kNotAsked,  // PlanOptions::coalesce_bytes is a number
    kNothing,   // no two launches are worth merging
    kApart,     // merges were tried, and the step was longer
    kNoRoom,    // merges were tried, and the arena was too small
    kMerged,
  };
  Choice choice = Choice::kNotAsked;
  int64_t apart_ns = 0;   // predicted step, unmerged; 0: not predicted
  int64_t merged_ns = 0;  // of the best that was tried
};

absl::string_view ChoiceName(MergeReport::Choice choice);  // "merged"

// "by cost: predicted step merged 4.1 us, apart 5.0 us".
std::string MergeText(const MergeReport& report);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_MERGE_REPORT_H_

#ifndef COMMSCHED_SRC_PLAN_MERGE_REPORT_H_
#define COMMSCHED_SRC_PLAN_MERGE_REPORT_H_

#include <cstdint>

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

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_MERGE_REPORT_H_

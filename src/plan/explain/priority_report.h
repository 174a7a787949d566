#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_PRIORITY_REPORT_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_PRIORITY_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace commsched {

// What prioritize found and chose (plan/prioritize.h). Predictions, so no part
// of the fingerprint.
struct PriorityReport {
  enum class Choice : uint8_t {
    kNotAsked,  // Priority::kOff, Schedule::kSerial
    kNoChoice,  // at most one order, or sends between roles
    kReady,     // as they get ready
    kNeed,      // by need
    kPolicy,    // the policy's
  };
  Choice choice = Choice::kNotAsked;
  bool fillers_delayed = false;
  bool by_need_tried = false;
  int64_t as_ready_ns = 0;  // predicted step; 0: not predicted
  int64_t by_need_ns = 0;   // if tried
  int64_t chosen_ns = 0;
  int64_t bound_ns = 0;  // no order of these launches is faster
};

absl::string_view ChoiceName(PriorityReport::Choice choice);  // "by_need"

// What a prediction of the whole plan knows better: that no step is below
// `bound_ns`, though cores are shared or a chain of dependencies is longer. So
// no order is, and nothing that is predicted.
PriorityReport Bounded(PriorityReport report, int64_t bound_ns);

// "by need: predicted step 4.1 us, as ready 10.2 us; no order is below 4.0 us,
// so priority could gain at most 6.2 us (60.8 %)".
std::string PriorityText(const PriorityReport& report);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_PRIORITY_REPORT_H_

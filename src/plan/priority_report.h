#ifndef COMMSCHED_SRC_PLAN_PRIORITY_REPORT_H_
#define COMMSCHED_SRC_PLAN_PRIORITY_REPORT_H_

#include <cstdint>

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
  bool by_need_tried = false;
  int64_t as_ready_ns = 0;  // predicted step; 0: not predicted
  int64_t by_need_ns = 0;   // if tried
  int64_t chosen_ns = 0;
  int64_t bound_ns = 0;  // no order of these launches is faster
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PRIORITY_REPORT_H_

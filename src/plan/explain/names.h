// How plans are spelled in explain, fingerprint lines and messages.
#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_NAMES_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "plan/plan.h"

namespace commsched {

absl::string_view WayName(Way way);                    // "in_place"
absl::string_view WaitCauseName(WaitCause cause);      // "hazard"
absl::string_view OwnershipName(Ownership ownership);  // "owned"

absl::string_view ScheduleName(Schedule schedule);  // "overlap"
absl::string_view PriorityName(Priority priority);  // "auto"
absl::string_view AccessModeName(AccessMode mode);  // "rw"

// "bwd.1", "#3" for a launch; "-1" follows if it is of the step before, and the
// cause if it is not a hazard: "#0-1:window".
std::string WaitName(const Plan& plan, const Wait& wait);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_NAMES_H_

#ifndef COMMSCHED_SRC_PLAN_POLICY_ORDER_H_
#define COMMSCHED_SRC_PLAN_POLICY_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/policy.h"
#include "plan/predict/job_model.h"

namespace commsched {

// Asks `policy` for the order of the transfers and checks that it is legal
// (policy.h). Empty: the policy leaves it to us. `earliest_ns` and `need_ns`
// are by node.
absl::StatusOr<std::vector<uint32_t>> OrderOfPolicy(
    const Policy& policy, absl::Span<const RoleDraft> roles,
    const JobModel& model, const std::vector<int64_t>& earliest_ns,
    const std::vector<int64_t>& need_ns);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_POLICY_ORDER_H_

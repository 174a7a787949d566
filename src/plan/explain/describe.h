// The map of a job: axis -> buckets -> bytes -> exposed time.
#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_DESCRIBE_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_DESCRIBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/plan.h"

namespace commsched {

// Of roles that were planned together: what each axis carries per step and
// rank, launch by launch, and what of it is predicted to be exposed and why.
// kInvalidArgument if there is no plan or they are not all roles of one job.
absl::StatusOr<std::string> DescribeText(absl::Span<const Plan* const> plans);
// docs/plan_json.md
absl::StatusOr<std::string> DescribeJson(absl::Span<const Plan* const> plans);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_DESCRIBE_H_

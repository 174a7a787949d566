// Values of the ABI as values of the library. Every function refuses, with
// kInvalidArgument naming field and value, what the enum does not name.
#ifndef COMMSCHED_SRC_CAPI_CONVERT_H_
#define COMMSCHED_SRC_CAPI_CONVERT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "commsched/commsched.h"
#include "graph/types.h"
#include "plan/options.h"

namespace commsched {

// A field that is 0 or 1.
absl::StatusOr<bool> ToFlag(absl::string_view field, uint32_t value);

// Ids are not looked up here: the graph knows what exists.
std::vector<OpId> ToOpIds(const commsched_op_id_t* ids, uint32_t count);

absl::StatusOr<Buffer> ToBuffer(const commsched_buffer_desc_t& desc);
absl::StatusOr<Op> ToComputeOp(const commsched_compute_desc_t& desc);
absl::StatusOr<Op> ToCollectiveOp(const commsched_collective_desc_t& desc);

absl::StatusOr<PlanOptions> ToPlanOptions(
    const commsched_plan_options_t& options);
// Zero fields become the defaults that the header names.
absl::StatusOr<CostProfile> ToCostProfile(
    const commsched_cost_profile_t& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_CONVERT_H_

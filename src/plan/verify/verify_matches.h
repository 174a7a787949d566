#ifndef COMMSCHED_SRC_PLAN_VERIFY_VERIFY_MATCHES_H_
#define COMMSCHED_SRC_PLAN_VERIFY_VERIFY_MATCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

// A launch of a role.
struct RoleLaunch {
  uint32_t role = 0;
  uint32_t launch = 0;
};

// Which launches of the roles of a job meet, so that none completes before all
// are issued.
struct RoleMatches {
  // Each is a collective on a communicator of several roles.
  std::vector<std::vector<RoleLaunch>> collectives;
  // By role and launch of a send or receive: those at the other ends.
  std::vector<std::vector<std::vector<RoleLaunch>>> peers;
};

// Fails with kInternal, naming the two sides, if members of a communicator
// would find different launches there: other collectives, another order of
// them, or sends and receives that do not pair up.
absl::StatusOr<RoleMatches> MatchRoles(absl::Span<const RoleSpec> roles,
                                       absl::Span<const Plan* const> plans);

// The name that messages have for a launch.
std::string NameOf(RoleLaunch at, absl::Span<const Plan* const> plans);
template <typename... Parts>
absl::Status RolesError(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("plan: roles: ", parts...));
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_VERIFY_VERIFY_MATCHES_H_

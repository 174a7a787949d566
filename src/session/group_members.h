// Ranks show each other who they take for the members of their groups.
#ifndef COMMSCHED_SRC_SESSION_GROUP_MEMBERS_H_
#define COMMSCHED_SRC_SESSION_GROUP_MEMBERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "session/session_spec.h"

namespace commsched {

// What a rank shows: of each group the name (by `names`), the axis and the
// ranks in group order. Groups along an axis of a mesh take a few bytes each,
// whatever their size.
std::string ShowGroups(absl::Span<const std::string> names,
                       absl::Span<const GroupSpec> groups);

// Whether every member of every group has that group: the same name, axis and
// ranks in the same order. `shown`: by rank. All ranks find the same, in
// O(n log n) in the sizes of the groups.
//
// kFailedPrecondition, beginning with `who` and naming the group, two ranks and
// what each of them has.
absl::Status CheckGroupsAgree(absl::string_view who,
                              absl::Span<const absl::string_view> shown);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_GROUP_MEMBERS_H_

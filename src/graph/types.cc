#include "graph/types.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace commsched {
namespace {

constexpr absl::string_view kCollectiveNames[] = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
    "reduce",     "barrier",        "send",       "recv"};

}  // namespace

absl::string_view CollectiveKindName(CollectiveKind kind) {
  return kCollectiveNames[static_cast<size_t>(kind)];
}

absl::StatusOr<CollectiveKind> ParseCollectiveKind(absl::string_view name) {
  for (size_t i = 0; i < std::size(kCollectiveNames); ++i) {
    if (kCollectiveNames[i] == name) return static_cast<CollectiveKind>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("collective '", name, "' is not one of ",
                   absl::StrJoin(kCollectiveNames, ", ")));
}

}  // namespace commsched

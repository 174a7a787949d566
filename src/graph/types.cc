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

bool IsReducing(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kReduce;
}

bool IsRooted(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

bool IsPointToPoint(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

bool HasInput(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kRecv;
}

bool HasOutput(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kSend;
}

bool MayBeLossy(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      return true;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier:
      break;
  }
  return false;
}

}  // namespace commsched

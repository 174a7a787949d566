#include "plan/names.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

constexpr absl::string_view kWays[] = {"single", "in_place", "group", "pack"};
constexpr absl::string_view kCauses[] = {"hazard", "arena", "window", "serial"};
constexpr absl::string_view kOwnerships[] = {"owned", "bound", "late_bound"};

}  // namespace

absl::string_view WayName(Way way) { return kWays[static_cast<size_t>(way)]; }

absl::string_view WaitCauseName(WaitCause cause) {
  return kCauses[static_cast<size_t>(cause)];
}

absl::string_view OwnershipName(Ownership ownership) {
  return kOwnerships[static_cast<size_t>(ownership)];
}

std::string RegionName(const Graph& graph, const Access& access) {
  const std::string& buffer = graph.buffer(access.buffer).name;
  switch (access.region.kind) {
    case RegionKind::kWhole:
      return buffer;
    case RegionKind::kRange:
      return absl::StrCat(buffer, "[", access.region.offset, ",+",
                          access.region.count, "]");
    case RegionKind::kShard:
      return absl::StrCat(buffer, "/", graph.group(access.region.group).name);
    case RegionKind::kTile:
      return absl::StrCat(buffer, "[", access.region.offset, ",+",
                          access.region.count, " x", access.region.rows, " by ",
                          access.region.stride, "]");
  }
  return buffer;
}

std::string WaitName(const Plan& plan, const Wait& wait) {
  std::string name = wait.producer.kind == NodeRef::Kind::kLaunch
                         ? absl::StrCat("#", wait.producer.index)
                         : plan.graph->op(OpId(wait.producer.index)).name;
  if (wait.distance != 0) absl::StrAppend(&name, "-", wait.distance);
  if (wait.cause != WaitCause::kHazard) {
    absl::StrAppend(&name, ":", WaitCauseName(wait.cause));
  }
  return name;
}

}  // namespace commsched

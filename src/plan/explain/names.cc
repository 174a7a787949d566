#include "plan/explain/names.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

constexpr absl::string_view kWays[] = {"single", "in_place", "group", "pack"};
constexpr absl::string_view kCauses[] = {"hazard", "arena", "window", "serial"};
constexpr absl::string_view kOwnerships[] = {"owned", "bound", "late_bound"};
constexpr absl::string_view kSchedules[] = {"overlap", "serial"};
constexpr absl::string_view kPriorities[] = {"auto", "off", "on"};
constexpr absl::string_view kModes[] = {"", "r", "w", "rw"};

}  // namespace

absl::string_view WayName(Way way) { return kWays[static_cast<size_t>(way)]; }

absl::string_view WaitCauseName(WaitCause cause) {
  return kCauses[static_cast<size_t>(cause)];
}

absl::string_view OwnershipName(Ownership ownership) {
  return kOwnerships[static_cast<size_t>(ownership)];
}

absl::string_view ScheduleName(Schedule schedule) {
  return kSchedules[static_cast<size_t>(schedule)];
}

absl::string_view PriorityName(Priority priority) {
  return kPriorities[static_cast<size_t>(priority)];
}

absl::string_view AccessModeName(AccessMode mode) {
  return kModes[static_cast<size_t>(mode)];
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

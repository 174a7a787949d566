#include "capi/rank_desc.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/streams.h"
#include "capi/timeout.h"

namespace commsched {

absl::Status CheckRankDesc(const RankDesc& desc) {
  RETURN_IF_ERROR(RequireNonNull({{"desc.context", desc.context}}));
  RETURN_IF_ERROR(RequireArrayField("desc.groups", desc.groups,
                                    "desc.num_groups", desc.num_groups));
  RETURN_IF_ERROR(RequireArrayField("desc.lanes", desc.lanes, "desc.num_lanes",
                                    desc.num_lanes));
  RETURN_IF_ERROR(
      TimeoutNs("launch_timeout_ns", desc.launch_timeout_ns).status());
  if (desc.trace != nullptr && desc.trace->context != desc.context->context) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.trace belongs to another context, that of rank ",
                     desc.trace->context->rank()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GroupSpec>> GroupsOf(const RankDesc& desc) {
  std::vector<GroupSpec> groups;
  for (uint32_t i = 0; i < desc.num_groups; ++i) {
    const commsched_group_t* group = desc.groups[i];
    if (group == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("desc.groups[", i, "] is NULL"));
    }
    if (group->context != desc.context->context) {
      return absl::InvalidArgumentError(
          absl::StrCat("desc.groups[", i, "], on axis '", group->spec.axis,
                       "', belongs to another context, that of rank ",
                       group->context->rank()));
    }
    groups.push_back(group->spec);
  }
  return groups;
}

absl::StatusOr<std::vector<Stream*>> LanesOf(const RankDesc& desc) {
  std::vector<Stream*> lanes;
  for (uint32_t i = 0; i < desc.num_lanes; ++i) {
    Stream* stream =
        KnownStream(desc.lanes[i], desc.context->context->device());
    if (stream == nullptr) {
      const absl::Status why = StreamError(desc.lanes[i]);
      return absl::Status(why.code(),
                          absl::StrCat("desc.lanes[", i, "]: ", why.message()));
    }
    lanes.push_back(stream);
  }
  return lanes;
}

}  // namespace commsched

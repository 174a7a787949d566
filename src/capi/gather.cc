#include "commsched/gather.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "capi/timeout.h"

using commsched::AtBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::Status TooLarge(absl::string_view name, uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "gathering '", name, "': ", bytes, " bytes exceed the limit of ",
      int{COMMSCHED_MAX_GATHER_BYTES}, " of all ranks together"));
}

absl::StatusOr<commsched_gather_desc_t> Read(
    const commsched_gather_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_gather_desc_t desc,
                   ReadStruct(caller_desc, "commsched_gather_desc_t"));
  RETURN_IF_ERROR(RequireNonNull(
      {{"desc.name", desc.name},
       {"desc.take", reinterpret_cast<const void*>(desc.take)}}));
  if (*desc.name == '\0') {
    return absl::InvalidArgumentError("desc.name is empty");
  }
  RETURN_IF_ERROR(RequireArray("desc.data", desc.data, desc.bytes));
  RETURN_IF_ERROR(TimeoutNs("timeout_ns", desc.timeout_ns).status());
  if (desc.bytes > COMMSCHED_MAX_GATHER_BYTES) {
    return TooLarge(desc.name, desc.bytes);
  }
  return desc;
}

absl::StatusOr<std::vector<std::string>> Gather(
    Context& context, const commsched_gather_desc_t& desc) {
  ASSIGN_OR_RETURN(const int64_t timeout_ns,
                   TimeoutNs("timeout_ns", desc.timeout_ns));
  const WaitingCall waiting(context.rank(), "gathers something of all ranks");
  const uint64_t number = context.TakeGatherNumber(desc.name);
  std::string shown;
  if (desc.bytes != 0) {
    shown.assign(static_cast<const char*>(desc.data), desc.bytes);
  }
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   context.world()->meeting()->AllGather(
                       absl::StrCat("gathering '", desc.name, "' ", number),
                       context.rank(), std::move(shown), timeout_ns));
  uint64_t bytes = 0;
  for (const std::string& one : all) bytes += one.size();
  if (bytes > COMMSCHED_MAX_GATHER_BYTES) return TooLarge(desc.name, bytes);
  return all;
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_context_gather(
    commsched_context_t* context, const commsched_gather_desc_t* desc) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"context", context}, {"desc", desc}}));
    ASSIGN_OR_RETURN(const commsched_gather_desc_t ours, commsched::Read(desc));
    ASSIGN_OR_RETURN(const auto all,
                     commsched::Gather(*context->context, ours));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      ours.take(ours.user, static_cast<int32_t>(rank), all[rank].data(),
                all[rank].size());
    }
    return absl::OkStatus();
  });
}

#include "commsched/waits.h"

#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "base/wait_signal.h"
#include "capi/boundary.h"

using commsched::AtBoundary;
using commsched::RequireNonNull;

commsched_status_t commsched_waits_describe(char** out_text) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"out_text", out_text}}));
    ASSIGN_OR_RETURN(*out_text,
                     commsched::DuplicateString(commsched::DescribeWaiters()));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_waits_print_on(int32_t signal) {
  return AtBoundary([&] { return commsched::PrintWaitersOn(signal); });
}

#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_UCX_FAILURE_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_UCX_FAILURE_H_

#include <ucs/type/status.h>

#include <string>

#include "support/outcome.h"

namespace commsched::ucx {

// Of a call of UCX, `what`, that returned `status`, which is not UCS_OK.
inline Outcome UcxFailure(const std::string& what, ucs_status_t status) {
  const bool is_scarcity = status == UCS_ERR_NO_MEMORY ||
                           status == UCS_ERR_NO_RESOURCE ||
                           status == UCS_ERR_EXCEEDS_LIMIT;
  return {is_scarcity ? COMMSCHED_RESOURCE_EXHAUSTED : COMMSCHED_UNAVAILABLE,
          what + ": " + ucs_status_string(status)};
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_UCX_FAILURE_H_

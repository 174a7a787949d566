#ifndef COMMSCHED_PLUGINS_UCX_OUTCOME_H_
#define COMMSCHED_PLUGINS_UCX_OUTCOME_H_

#include <cerrno>
#include <string>

#include "commsched/plugin.h"

namespace commsched::ucx {

// A status code and its reason.
struct Outcome {
  commsched_status_t code = COMMSCHED_OK;
  std::string reason;

  bool ok() const { return code == COMMSCHED_OK; }
};

// Whether it is refused for what this process is, and not for what is scarce.
inline bool IsForbidden(int error) {
  return error == EACCES || error == EPERM || error == ENOSYS;
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_OUTCOME_H_

#ifndef COMMSCHED_PLUGINS_SUPPORT_OUTCOME_H_
#define COMMSCHED_PLUGINS_SUPPORT_OUTCOME_H_

#include <string>

#include "commsched/plugin.h"

namespace commsched {

// A status code and its reason. A reason beside OK is what init and comm_ready
// may say where nothing has failed: what was found, and what is waited for.
struct Outcome {
  commsched_status_t code = COMMSCHED_OK;
  std::string reason;

  bool ok() const { return code == COMMSCHED_OK; }
};

}  // namespace commsched

#endif  // COMMSCHED_PLUGINS_SUPPORT_OUTCOME_H_

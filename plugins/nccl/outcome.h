#ifndef COMMSCHED_PLUGINS_NCCL_OUTCOME_H_
#define COMMSCHED_PLUGINS_NCCL_OUTCOME_H_

#include <string>

#include "commsched/plugin.h"

namespace commsched::nccl {

// A status code and its reason.
struct Outcome {
  commsched_status_t code = COMMSCHED_OK;
  std::string reason;

  bool ok() const { return code == COMMSCHED_OK; }
};

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_OUTCOME_H_

// What a backend's table says that it can do, as planning knows it.
#ifndef COMMSCHED_SRC_SESSION_BACKEND_MODEL_H_
#define COMMSCHED_SRC_SESSION_BACKEND_MODEL_H_

#include "absl/status/status.h"
#include "commsched/plugin.h"
#include "plan/options.h"
#include "plan/plan.h"

namespace commsched {

BackendModel ModelOf(const commsched_backend_t& backend);

// kFailedPrecondition, naming the first launch and what it takes, if `backend`
// cannot run `plan`, which may have been made for another one.
absl::Status CheckBackend(const Plan& plan, const commsched_backend_t& backend);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_BACKEND_MODEL_H_

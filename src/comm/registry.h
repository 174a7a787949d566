#ifndef COMMSCHED_SRC_COMM_REGISTRY_H_
#define COMMSCHED_SRC_COMM_REGISTRY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "commsched/plugin.h"

namespace commsched {

// A backend by its name. NotFound, listing the names there are. Thread-safe.
absl::StatusOr<const commsched_backend_t*> FindBackend(absl::string_view name);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_REGISTRY_H_

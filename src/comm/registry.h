#ifndef COMMSCHED_SRC_COMM_REGISTRY_H_
#define COMMSCHED_SRC_COMM_REGISTRY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched {

// A backend by its name.
struct BackendEntry {
  const commsched_backend_t* table = nullptr;
  // Makes what the ranks of one world share and pass to comm_create.
  // InvalidArgument for a spec that the backend cannot follow.
  absl::StatusOr<std::shared_ptr<void>> (*make_instance)(
      const WorldSpec& spec) = nullptr;
};

// NotFound, listing the names there are. Thread-safe.
absl::StatusOr<BackendEntry> FindBackend(absl::string_view name);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_REGISTRY_H_

// Checks what a caller binds to a plan, and resolves it to addresses.
#ifndef COMMSCHED_SRC_SESSION_BINDING_H_
#define COMMSCHED_SRC_SESSION_BINDING_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "session/session_spec.h"

namespace commsched {

// kInvalidArgument unless the groups are those of the graph, in size and
// number.
absl::Status CheckGroups(const SessionSpec& spec);

// Whether launches of `backend` are enqueued on streams of a device.
bool EnqueuesOn(const commsched_backend_t& backend);

// Whether the session's lanes, memory and options go with its rank's device:
// kInvalidArgument, or kUnimplemented for what only works on the host.
absl::Status CheckDevice(const SessionSpec& spec,
                         const std::vector<Stream*>& lanes);

// kInvalidArgument if a manual session could block its thread, or one that is
// not manual is given a clock of its own.
absl::Status CheckProgress(const SessionSpec& spec,
                           const std::vector<Stream*>& lanes);

// Addresses by BufferId: the caller's for BOUND buffers, null for others.
// kInvalidArgument, naming the buffer, if one is unbound, bound twice, too
// small, misaligned, or not BOUND, or if two overlap (exec/bound_ranges.h).
absl::StatusOr<std::vector<void*>> ResolveBindings(const SessionSpec& spec);

// The stream of each compute lane of the plan.
absl::StatusOr<std::vector<Stream*>> ResolveLanes(const SessionSpec& spec);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_BINDING_H_

// What Graph checks before it lets something in. Reads the graph, never
// changes it.
#ifndef COMMSCHED_SRC_GRAPH_VALIDATE_H_
#define COMMSCHED_SRC_GRAPH_VALIDATE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "graph/graph.h"

namespace commsched {

// 1 to Graph::kMaxNameBytes bytes of UTF-8 without NUL, so that a name survives
// C, JSON and traces. `what` is "op", "buffer" or "group".
absl::Status ValidateName(absl::string_view what, absl::string_view name);

absl::Status ValidateBuffer(const Buffer& buffer);

// Everything but name, `after` and room, which do not depend on the kind. `op`
// is as Graph keeps it: unused fields reset, accesses of a collective filled.
absl::Status ValidateCompute(const Graph& graph, const Op& op);
absl::Status ValidateCollective(const Graph& graph, const Op& op);

// One access of `op`: known mode and region, ids of the graph, inside its
// buffer. An `uneven` shard is split by counts, which are checked elsewhere.
absl::Status ValidateAccess(const Graph& graph, const Op& op,
                            const Access& access, bool uneven);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_VALIDATE_H_

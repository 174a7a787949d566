#ifndef COMMSCHED_SRC_GRAPH_JSON_H_
#define COMMSCHED_SRC_GRAPH_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/graph.h"

namespace commsched {

// Format "commsched-graph/1" (docs/graph_json.md).
// GraphFromJson(GraphToJson(g)) equals g.
std::string GraphToJson(const Graph& graph);
absl::StatusOr<Graph> GraphFromJson(absl::string_view json);

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_JSON_H_

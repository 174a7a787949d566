// The words that the JSON format has for the enums of graph/types.h.
#ifndef COMMSCHED_SRC_GRAPH_JSON_NAMES_H_
#define COMMSCHED_SRC_GRAPH_JSON_NAMES_H_

#include "absl/strings/string_view.h"

namespace commsched {

inline constexpr absl::string_view kGraphFormat = "commsched-graph/1";

// Indexed by the enum's value; AccessMode starts at 1.
inline constexpr absl::string_view kOwnershipNames[] = {"owned", "bound",
                                                        "late_bound"};
inline constexpr absl::string_view kRegionNames[] = {"whole", "range", "shard",
                                                     "tile"};
inline constexpr absl::string_view kModeNames[] = {"", "read", "write",
                                                   "read_write"};
inline constexpr absl::string_view kComputeName = "compute";

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_JSON_NAMES_H_

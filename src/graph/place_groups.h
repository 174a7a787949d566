// Buffers that lie at one offset of the arena, one after the other.
#ifndef COMMSCHED_SRC_GRAPH_PLACE_GROUPS_H_
#define COMMSCHED_SRC_GRAPH_PLACE_GROUPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "graph/graph.h"

namespace commsched {

// Whether the buffers of each place group follow one another: in declared
// order, no two are alive at once. A buffer is alive from its first access to
// its last one. If the first does not write the whole of it, or also reads it,
// it keeps its contents from step to step, is alive all the time and overlaps
// with every other. A buffer that no op accesses is never alive.
//
// kInvalidArgument, naming both buffers and the ops. O(accesses), and
// O(n log n) in the buffers of groups; nothing if there are none.
absl::Status CheckPlaceGroups(const Graph& graph);

// Who uses the memory of each place group. Uses are recorded in increasing time
// (BufferHistory), of a graph whose groups CheckPlaceGroups() accepts.
//
// Thread-compatible.
class PlaceHistory {
 public:
  using Time = uint32_t;

  explicit PlaceHistory(const Graph& graph);

  // Records a use of `buffer`. If another of its group was the last to be used,
  // returns the times of that one's users, which this use must come after.
  // `rewrites`: the use comes after all earlier ones of the buffer anyway.
  // The result is valid until the next call.
  absl::Span<const Time> Use(BufferId buffer, Time now, bool rewrites);

 private:
  struct Place {
    BufferId holder;          // the last to be used
    std::vector<Time> users;  // of it, whom no later one comes after anyway
    bool rewritten = false;   // by the only one of them
  };

  std::vector<uint32_t> place_of_buffer_;  // kNone: in no group
  std::vector<Place> places_;
  std::vector<Time> left_;  // the users of who has been followed
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_PLACE_GROUPS_H_

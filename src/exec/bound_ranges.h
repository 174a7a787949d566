#ifndef COMMSCHED_SRC_EXEC_BOUND_RANGES_H_
#define COMMSCHED_SRC_EXEC_BOUND_RANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "graph/graph.h"

namespace commsched {

// Where the buffers that some op accesses lie in memory. Planning orders
// accesses to one buffer and takes different buffers for different memory; what
// the caller binds is held to that here.
//
// Immutable, hence thread-safe.
class BoundRanges {
 public:
  // `addresses`: by BufferId; null: left out. The graph must outlive this.
  BoundRanges(const Graph& graph, const std::vector<void*>& addresses);

  // kInvalidArgument, beginning with `who` and naming both, what they share and
  // an op that writes there, if two buffers overlap and an op writes one of
  // them. O(n log n) with the constructor.
  absl::Status CheckApart(absl::string_view who) const;

  // A buffer that has any of the `bytes` at `address`; invalid if there is
  // none. O(log n), allocates nothing.
  BufferId Meets(const void* address, uint64_t bytes) const;

 private:
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    BufferId buffer;
    OpId writer;  // the first; invalid: only read
    // Among this range and those before it, the one that reaches furthest.
    uint32_t furthest = 0;
  };

  const Graph& graph_;
  std::vector<Range> ranges_;  // by begin
};

// "bytes 16 to 31 of 'a' are bytes 0 to 15 of 'b'", of two ranges that overlap.
std::string SharedBytes(absl::string_view a, const void* a_address,
                        uint64_t a_bytes, absl::string_view b,
                        const void* b_address, uint64_t b_bytes);

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_BOUND_RANGES_H_

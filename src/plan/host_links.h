// What a reduce-scatter puts on the links between hosts.
#ifndef COMMSCHED_SRC_PLAN_HOST_LINKS_H_
#define COMMSCHED_SRC_PLAN_HOST_LINKS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace commsched {

// What the busiest direction of any host's link carries in a reduce-scatter of
// all ranks of a job, per element of a part.
struct HostLinks {
  uint64_t num_ranks = 0;  // 0: nothing is known
  uint64_t elements = 0;   // if every rank sends each other one its part
  // Bytes if hosts send each other sums (COMMSCHED_BACKEND_HOST_SUMS), of types
  // of 16 and of 32 bits.
  uint64_t summed_bytes_16 = 0;
  uint64_t summed_bytes_32 = 0;
  friend bool operator==(const HostLinks&, const HostLinks&) = default;
};

// Ranks with the same number share a host.
HostLinks HostLinksOf(absl::Span<const int32_t> host_of_rank);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_HOST_LINKS_H_

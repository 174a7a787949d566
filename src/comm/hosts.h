// On which host each rank of a world is.
#ifndef COMMSCHED_SRC_COMM_HOSTS_H_
#define COMMSCHED_SRC_COMM_HOSTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/world.h"

namespace commsched {

// By rank: hosts are numbered from 0 in the order of their first ranks. Ranks
// share one if the roster says so (control/roster.h); threads of one process
// do. A rank whose host is not known is on one of its own. Blocks until all
// ranks of the job have joined, or one is lost.
absl::StatusOr<std::vector<int32_t>> HostsOf(World* world);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_HOSTS_H_

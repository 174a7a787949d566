// Random launches, the same on all ranks of a job, whose bits are known.
#ifndef COMMSCHED_TEST_PROCESSES_RANDOM_LAUNCHES_H_
#define COMMSCHED_TEST_PROCESSES_RANDOM_LAUNCHES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "comm/world.h"

namespace commsched::test {

// Launches of all kinds, types and reductions as the own rank of `world`, a job
// of processes, of all its ranks and of some in another order: of several
// members, in place, strided, by counts, also large ones, with values of which
// another order of sums would show where the order is promised. Internal,
// saying which, if a result is not what the definition says. One rank also runs
// them all on the backend inproc, and expects the same there.
absl::Status RunRandomLaunches(uint64_t seed, World* world);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_PROCESSES_RANDOM_LAUNCHES_H_

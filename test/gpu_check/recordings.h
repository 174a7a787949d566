#ifndef COMMSCHED_TEST_GPU_CHECK_RECORDINGS_H_
#define COMMSCHED_TEST_GPU_CHECK_RECORDINGS_H_

#include <memory>
#include <vector>

#include "comm/world.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {

// Recordings of `world`, of which `rank` is one that lives here; all ranks make
// the same calls.
std::vector<Result> RecordingsOf(const std::shared_ptr<World>& world, int rank);

// The same in a world of this process, of `ranks` devices.
void CheckRecordings(int ranks, Results* results);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_RECORDINGS_H_

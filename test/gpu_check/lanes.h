#ifndef COMMSCHED_TEST_GPU_CHECK_LANES_H_
#define COMMSCHED_TEST_GPU_CHECK_LANES_H_

#include <memory>
#include <vector>

#include "comm/world.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {

// What worlds and sessions that share a device do to each other, on `rank`, one
// of the two of `world`; both call this.
std::vector<Result> LanesOf(const std::shared_ptr<World>& world, int rank);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_LANES_H_

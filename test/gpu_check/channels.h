#ifndef COMMSCHED_TEST_GPU_CHECK_CHANNELS_H_
#define COMMSCHED_TEST_GPU_CHECK_CHANNELS_H_

#include <memory>
#include <vector>

#include "comm/world.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {

// What channels do on `rank`, one of the two of `world`; both call this.
std::vector<Result> ChannelsOf(const std::shared_ptr<World>& world, int rank);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_CHANNELS_H_

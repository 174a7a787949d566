#ifndef COMMSCHED_TEST_GPU_CHECK_LANES_H_
#define COMMSCHED_TEST_GPU_CHECK_LANES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {

// What worlds and sessions that share a device do to each other, on `rank`, one
// of the two of `world`; both call this.
std::vector<Result> LanesOf(const std::shared_ptr<World>& world, int rank);

// What `body` finds on each of two ranks: threads with a device each, where
// there are two; and processes that share one, where these are no stand-ins, by
// the member `task` of this program, which has the same body.
using OfTwoRanks = std::function<std::vector<Result>(
    const std::shared_ptr<World>& world, int rank)>;
void CheckTwoRanks(const Options& options, const std::string& task,
                   const OfTwoRanks& body, Results* results);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_LANES_H_

// Random training steps whose result is known.
#ifndef COMMSCHED_TEST_SUPPORT_RANDOM_STEP_H_
#define COMMSCHED_TEST_SUPPORT_RANDOM_STEP_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace commsched::test {

// What a random step may contain.
struct RandomStepLimits {
  int max_ranks = 4;
  int max_buffers = 8;
  int max_ops = 24;
  int max_compute_lanes = 1;
};

// A graph over integer buffers, so that sums are exact in any order, in which
// every compute op does arithmetic that depends on all it reads, on its id and
// on the step. So a race, a lost update or a stale read changes the result.
struct RandomStep {
  Graph graph;
  int num_ranks = 0;  // every group has them all, in world order
};

// The same for the same seed.
RandomStep MakeRandomStep(uint64_t seed, const RandomStepLimits& limits);

// Memory of one rank: the contents of each buffer, by BufferId.
using RankMemory = std::vector<std::vector<int64_t>>;

// What every rank's memory holds before the first step.
RankMemory InitialMemory(const RandomStep& step, int rank);

// Runs compute op `id` of step number `t` on a rank whose buffers lie at
// `address` (by BufferId).
void RunCompute(const RandomStep& step, OpId id, uint64_t t, int rank,
                const std::vector<int64_t*>& address);

// The reference: all ops in declared order, one after the other, all ranks.
std::vector<RankMemory> RunSequentially(const RandomStep& step,
                                        uint64_t num_steps);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_RANDOM_STEP_H_

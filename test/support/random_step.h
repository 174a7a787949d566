// Random training steps whose result is known.
#ifndef COMMSCHED_TEST_SUPPORT_RANDOM_STEP_H_
#define COMMSCHED_TEST_SUPPORT_RANDOM_STEP_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace commsched::test {

// What a random step may contain. The flags are for who can run what they add.
struct RandomStepLimits {
  int min_ranks = 1;
  int max_ranks = 4;
  int max_buffers = 8;
  int max_ops = 24;
  int max_compute_lanes = 1;
  bool subgroups = false;   // groups of some of the ranks: a mesh
  bool tiles = false;       // strided tiles, in compute ops and collectives
  bool late_bound = false;  // buffers whose address and count come every step
  bool peers = false;       // rings of send and receive
  bool uneven = false;      // all-to-all, reduce-scatter and gather by counts
  bool barriers = false;
  bool place_groups = false;  // owned buffers that take turns at one place
};

// A graph over integer buffers, so that sums are exact in any order, in which
// every compute op does arithmetic that depends on all it reads, on its id and
// on the step. So a race, a lost update or a stale read changes the result.
struct RandomStep {
  Graph graph;
  int num_ranks = 0;
  // By GroupId: the sets of world ranks that are one communicator each, in
  // order of their positions. Every rank is in one of each group.
  std::vector<std::vector<std::vector<int>>> communicators;
  // By OpId, the ranks without that op; empty: every rank has every op.
  std::vector<std::vector<bool>> left_out;

  bool Has(int rank, OpId op) const {
    return left_out.empty() || !left_out[op.value()][rank];
  }
  // The communicator of `group` that `rank` is in, and its position there.
  const std::vector<int>& RanksOf(GroupId group, int rank) const;
  int PositionOf(GroupId group, int rank) const;
};

// The same for the same seed.
RandomStep MakeRandomStep(uint64_t seed, const RandomStepLimits& limits);

// Elements of `buffer` in step `t`, equal on all ranks: all, or of a late-bound
// one some; all late-bound buffers have the same share of theirs.
uint64_t CountInStep(const RandomStep& step, BufferId buffer, uint64_t t);

// Memory of one rank: the contents of each buffer, by BufferId.
using RankMemory = std::vector<std::vector<int64_t>>;

// What every rank's memory holds before the first step.
RankMemory InitialMemory(const RandomStep& step, int rank);

// Runs compute op `id` of step number `t` on a rank whose buffers lie at
// `address` (by BufferId).
void RunCompute(const RandomStep& step, OpId id, uint64_t t, int rank,
                const std::vector<int64_t*>& address);

// Elements that RunCompute() reads, or writes, one after the other.
struct ElementRun {
  BufferId buffer;
  uint64_t begin = 0;
  uint64_t count = 0;
  bool writes = false;
};
std::vector<ElementRun> ElementsOfCompute(const RandomStep& step, OpId id,
                                          uint64_t t, int rank);
// The same of what a collective reads and writes of `rank`.
std::vector<ElementRun> ElementsOfCollective(const RandomStep& step, OpId id,
                                             uint64_t t, int rank);

// The reference: all ops in declared order, one after the other, all ranks. A
// late-bound buffer stays where it is, and keeps what is beyond its count. The
// memory after `num_steps` steps.
std::vector<RankMemory> RunSequentially(const RandomStep& step,
                                        uint64_t num_steps);
// After 0, 1, ... `num_steps` steps.
std::vector<std::vector<RankMemory>> RunStepByStep(const RandomStep& step,
                                                   uint64_t num_steps);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_RANDOM_STEP_H_

// What ranks of `ucx` do for a launch, counted from what they build for it.
#ifndef COMMSCHED_BENCH_MESSAGES_COUNTS_H_
#define COMMSCHED_BENCH_MESSAGES_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/ucx/algorithms/choice.h"

namespace commsched {

struct LaunchCase {
  commsched_collective_t kind = COMMSCHED_ALL_REDUCE;
  commsched_dtype_t dtype = COMMSCHED_F32;
  int size = 1;
  int per_host = 1;
  uint64_t array_bytes = 0;
  int first_host = 0;  // Ranks of the first host, if they are not `per_host`.

  std::vector<int> Hosts() const;
};

// The most that a rank or host has of each, of those that were looked at.
struct LaunchCounts {
  ucx::Choice choice;
  ucx::Crossing told;        // What a session would tell of it.
  uint64_t array_bytes = 0;  // After rounding to equal parts of elements.
  int64_t messages = 0;      // Sends, receives, offers, answers.
  // Peers that it exchanges messages with, and those that it joins by.
  int64_t endpoints = 0;
  uint64_t scratch_bytes = 0;
  uint64_t link_bytes = 0;  // Over the busiest direction of a host's link.
};

// Looks at all ranks of some hosts: the first and last ones, and those in
// between that have most to do.
LaunchCounts CountLaunch(const LaunchCase& launch,
                         const ucx::ChoiceOptions& options);

}  // namespace commsched

#endif  // COMMSCHED_BENCH_MESSAGES_COUNTS_H_

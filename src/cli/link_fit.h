// The arithmetic of `commsched bench coll --profile`.
#ifndef COMMSCHED_SRC_CLI_LINK_FIT_H_
#define COMMSCHED_SRC_CLI_LINK_FIT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "commsched/link_profile.h"

namespace commsched::cli {

// Of one round, per step: two ranks sent each other `bytes` at once.
struct LinkSample {
  uint64_t bytes = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // of one of them, for the two messages it has
};

// Sizes that are timed: the first for latency and the cost of a message, the
// others for the rate.
inline constexpr uint64_t kLinkBytes[] = {8, 256 << 10, 1 << 20, 4 << 20,
                                          8 << 20};

// The level that explains `samples`, in which each size of kLinkBytes occurs.
// Latency and cost of a message are the medians of the smallest size. The rate
// is the median of those between every two of the larger sizes, each of which
// counts with the median of its times: a round that was disturbed, and what
// each message costs whatever its size, do not show in it.
commsched_link_level_t FitLevel(const std::vector<LinkSample>& samples);

// The lower one of two in the middle; 0 of none.
double MedianOf(std::vector<double> values);

// Pairs of ranks whose link is timed, by level; `hosts` by rank.
struct LinkPairs {
  std::vector<std::pair<int32_t, int32_t>> host;
  std::vector<std::pair<int32_t, int32_t>> network;
};

// The first two ranks of each host, and the first rank of host 0 with that of
// each other host: up to `most` of each.
LinkPairs PairsOf(const std::vector<int32_t>& hosts, size_t most);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_LINK_FIT_H_

// The least that a collective takes of the links between hosts, from its
// definition alone: nothing of the backend's.
#ifndef COMMSCHED_BENCH_MESSAGES_LEAST_H_
#define COMMSCHED_BENCH_MESSAGES_LEAST_H_

#include <cstdint>
#include <vector>

#include "commsched/types.h"

namespace commsched {

struct LeastCase {
  commsched_collective_t kind = COMMSCHED_ALL_REDUCE;
  std::vector<int> host_of;  // By rank, numbered from 0.
  // Of the array of which each rank has all or, of kinds with a part for each
  // rank, an equal part.
  uint64_t elements = 0;
  double element_bytes = 4;
  // Elements as wide as a sum of several positions: 2 for 16-bit types. Inputs
  // travel as they are where they are fewer.
  int widening = 1;
};

// Bytes over the busiest direction of all links; the root is rank 0.
//
// Parts that are gathered leave their host at least once, and come to each
// other one, which may send them on; other parts go straight. A deterministic
// sum is a tree over the ranks, T(lo, hi) = T(lo, m) + T(m, hi), with m - lo
// the largest power of two below hi - lo: a host sends one sum for each largest
// node that covers ranks of its own only. Where a result is not in parts, the
// shares, of whole elements, that hosts add up are those with which the busiest
// link carries least.
double LeastLinkBytes(const LeastCase& least);

}  // namespace commsched

#endif  // COMMSCHED_BENCH_MESSAGES_LEAST_H_

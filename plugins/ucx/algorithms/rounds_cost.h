// What small launches cost, which go by rounds of one message each.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_ROUNDS_COST_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_ROUNDS_COST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ucx/algorithms/algorithm.h"

namespace commsched::ucx {

// Rounds one after the other.
class RoundsCost {
 public:
  explicit RoundsCost(const CostContext& context) : links_(context.links) {}

  void AddRoundsNear(int count, uint64_t bytes) {
    AddRounds(links_.host, count, bytes);
  }
  // `sharing`: how many of these cross a host's link at once.
  void AddRoundsFar(int count, uint64_t bytes, int sharing = 1) {
    AddRounds(links_.network, count, bytes * static_cast<uint64_t>(sharing));
  }
  int64_t ns() const { return ns_; }

 private:
  void AddRounds(const LinkLevel& link, int count, uint64_t bytes) {
    ns_ += count *
           (link.latency_ns + 2 * link.message_ns + TransferNs(link, bytes));
  }

  const LinkProfile& links_;
  int64_t ns_ = 0;
};

inline int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// Over the busiest direction of any host's link, of what is fixed.
inline uint64_t MostFixed(const std::vector<HostLoad>& links) {
  int64_t most = 0;
  for (const HostLoad& link : links) {
    most = std::max({most, link.out.fixed, link.in.fixed});
  }
  return static_cast<uint64_t>(most);
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_ROUNDS_COST_H_

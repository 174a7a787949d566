// How long who sleeps lets bytes of large launches gather.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_GATHERING_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_GATHERING_H_

#include <algorithm>
#include <cstdint>

#include "ucx/algorithms/link_costs.h"

namespace commsched::ucx {

// Launches of which at least so much has still to be sent or received between
// hosts are in no hurry. Those of which less is left are about to end.
inline constexpr uint64_t kUnhurriedBytes = 4 << 20;

// A slow link delivers a few packets at a time, and each of them would wake who
// sleeps. So that one sleeps for as long as the link needs for some of what a
// socket's buffer holds: by then neither is the sender's buffer empty nor the
// receiver's full. At most a millisecond, for messages that are not large after
// all; 0, which is not at all, where it would be so short that what it saves is
// less than what a second sleep costs.
inline int64_t GatheringNs(const LinkLevel& link) {
  constexpr uint64_t kBytes = 128 << 10;
  constexpr int64_t kMostNs = int64_t{1} * 1000 * 1000;
  constexpr int64_t kLeastNs = int64_t{200} * 1000;
  const int64_t ns = TransferNs(link, kBytes);
  return ns < kLeastNs ? 0 : std::min(ns, kMostNs);
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_GATHERING_H_

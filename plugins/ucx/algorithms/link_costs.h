// What messages cost within a host and between hosts.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_LINK_COSTS_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_LINK_COSTS_H_

#include <algorithm>
#include <cstdint>

#include "commsched/plugin.h"

namespace commsched::ucx {

// Equal on all ranks, since choices depend on it.
using LinkLevel = commsched_link_level_t;
using LinkProfile = commsched_link_profile_t;

inline LinkProfile DefaultLinkProfile() {
  return commsched_link_profile_init();
}

// A whole number: what is computed with it is the same on every machine.
inline uint64_t WholeRate(const LinkLevel& link) {
  return static_cast<uint64_t>(std::clamp(link.bytes_per_s, 1.0, 1e15));
}

inline int64_t TransferNs(const LinkLevel& link, uint64_t bytes) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<int64_t>(Wide{bytes} * 1'000'000'000 / WholeRate(link));
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_LINK_COSTS_H_

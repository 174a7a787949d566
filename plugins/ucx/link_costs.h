// What messages cost within a host and between hosts.
#ifndef COMMSCHED_PLUGINS_UCX_LINK_COSTS_H_
#define COMMSCHED_PLUGINS_UCX_LINK_COSTS_H_

#include <algorithm>
#include <cstdint>

namespace commsched::ucx {

// One level of links.
struct LinkLevel {
  int64_t latency_ns = 0;  // Until a message of no bytes is there.
  // In each direction: of a rank, within a host; of a host's link, which its
  // ranks share, between hosts.
  double bytes_per_s = 1;
  int64_t message_ns = 0;  // Of a core, at the sender and at the receiver.
};

// Equal on all ranks, since choices depend on it.
struct LinkProfile {
  LinkLevel host;
  LinkLevel network;
};

// Memory that several ranks of a host copy through, and 10 Gbit/s.
inline LinkProfile DefaultLinkProfile() {
  return {{20'000, 4e9, 2'000}, {50'000, 1.25e9, 5'000}};
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

#endif  // COMMSCHED_PLUGINS_UCX_LINK_COSTS_H_

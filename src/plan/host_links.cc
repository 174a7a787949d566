#include "plan/host_links.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>

namespace commsched {
namespace {

constexpr uint64_t kPartialBytes = 4;  // f32, of all types that are encoded

struct HostSends {
  uint64_t ranks = 0;
  // Bytes per element that go to a rank of another host.
  uint64_t bytes_16 = 0;
  uint64_t bytes_32 = 0;
};
using SendsByHost = std::map<int32_t, HostSends>;

// Ranks [begin, end) are a node of the summing tree (commsched/plugin.h).
void AddNode(absl::Span<const int32_t> host_of_rank, size_t begin, size_t end,
             SendsByHost* sends) {
  const size_t size = end - begin;
  const int32_t host = host_of_rank[begin];
  const bool is_on_one_host =
      std::all_of(host_of_rank.begin() + static_cast<ptrdiff_t>(begin),
                  host_of_rank.begin() + static_cast<ptrdiff_t>(end),
                  [&](int32_t other) { return other == host; });
  if (is_on_one_host) {
    HostSends& of_host = (*sends)[host];
    of_host.ranks += size;
    of_host.bytes_16 += size == 1 ? 2 : kPartialBytes;
    of_host.bytes_32 += kPartialBytes;
    return;
  }
  const size_t middle = begin + std::bit_floor(size - 1);
  AddNode(host_of_rank, begin, middle, sends);
  AddNode(host_of_rank, middle, end, sends);
}

}  // namespace

HostLinks HostLinksOf(absl::Span<const int32_t> host_of_rank) {
  HostLinks links;
  links.num_ranks = host_of_rank.size();
  if (host_of_rank.empty()) return links;
  SendsByHost sends;
  AddNode(host_of_rank, 0, host_of_rank.size(), &sends);
  HostSends all;
  for (const auto& [host, own] : sends) {
    all.bytes_16 += own.bytes_16;
    all.bytes_32 += own.bytes_32;
  }
  for (const auto& [host, own] : sends) {
    const uint64_t elsewhere = links.num_ranks - own.ranks;
    const auto busier = [&](uint64_t own_bytes, uint64_t all_bytes) {
      return std::max(own_bytes * elsewhere,
                      (all_bytes - own_bytes) * own.ranks);
    };
    links.elements = std::max(links.elements, own.ranks * elsewhere);
    links.summed_bytes_16 =
        std::max(links.summed_bytes_16, busier(own.bytes_16, all.bytes_16));
    links.summed_bytes_32 =
        std::max(links.summed_bytes_32, busier(own.bytes_32, all.bytes_32));
  }
  return links;
}

}  // namespace commsched

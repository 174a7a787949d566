// Which ranks of a group share a host, and what that means for what crosses the
// links between hosts.
#ifndef COMMSCHED_PLUGINS_UCX_LAYOUT_H_
#define COMMSCHED_PLUGINS_UCX_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commsched::ucx {

// Positions of a group: [begin, end).
struct Node {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
};

// Immutable.
class Layout {
 public:
  // `keys`: by rank of the group, equal for ranks that share a host.
  explicit Layout(const std::vector<int>& keys);

  int size() const { return static_cast<int>(host_of_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_.size()); }
  // Numbered in the order of their first ranks.
  int HostOf(int rank) const { return host_of_[Index(rank)]; }
  bool ShareHost(int a, int b) const { return HostOf(a) == HostOf(b); }
  // Ascending.
  const std::vector<int>& RanksOf(int host) const {
    return ranks_[Index(host)];
  }
  // Of a rank among those of its host.
  int IndexOf(int rank) const { return index_of_[Index(rank)]; }
  // The largest node of the summing tree (commsched/plugin.h) with this rank in
  // it and no rank of another host.
  const Node& NodeOf(int rank) const { return node_of_[Index(rank)]; }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  void FindNodes(int begin, int end);

  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_;
  std::vector<int> index_of_;
  std::vector<Node> node_of_;
};

// What a direction of a host's link carries if the host has a share of a
// result, in bytes per element of the whole: `fixed` without one, and `slope`
// more, or less, with all of it.
struct LinkLoad {
  int64_t fixed = 0;
  int64_t slope = 0;
};
struct HostLoad {
  LinkLoad out;
  LinkLoad in;
};

// Shares of hosts are in these units.
inline constexpr int64_t kWholeShare = int64_t{1} << 30;

// Finds the shares, which add up to kWholeShare, with which the busiest
// direction of any link carries least, and as equal ones as that leaves. By
// integers: every machine finds the same. `shares` has room for them; memory
// is not allocated.
void FindShares(const std::vector<HostLoad>& loads,
                std::vector<int64_t>* shares);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_LAYOUT_H_

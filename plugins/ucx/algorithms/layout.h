// Which ranks of a group share a host, and what that means for what crosses the
// links between hosts.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_LAYOUT_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_LAYOUT_H_

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

  // Places: ranks host by host, 0..size() - 1. Those of a host begin at
  // FirstPlaceOf(), which knows num_hosts(), too.
  int PlaceOf(int rank) const {
    return FirstPlaceOf(HostOf(rank)) + IndexOf(rank);
  }
  int RankAt(int place) const { return rank_at_[Index(place)]; }
  int FirstPlaceOf(int host) const { return first_place_[Index(host)]; }
  bool PlacesAreRanks() const { return places_are_ranks_; }

  // The largest power of two such that ranks k * block() .. (k+1) * block() - 1
  // share a host, for every k. Above the size of the group: all do.
  int block() const { return block_; }
  int most_ranks_per_host() const { return most_ranks_per_host_; }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  void FindNodes(int begin, int end);
  void FindPlaces();
  bool AreOnOneHost(int begin, int end) const;

  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_;
  std::vector<int> index_of_;
  std::vector<Node> node_of_;
  std::vector<int> rank_at_;
  std::vector<int> first_place_;
  bool places_are_ranks_ = true;
  int block_ = 1;
  int most_ranks_per_host_ = 0;
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

// The least that the busiest direction of any link carries, whatever the shares
// of hosts: in bytes per element, in units of 1 / kWholeShare.
int64_t LeastLoad(const std::vector<HostLoad>& loads);

// Finds the shares, which add up to kWholeShare, with which the busiest
// direction of any link carries least, and as equal ones as that leaves. By
// integers: every machine finds the same. `shares` has room for them; memory
// is not allocated.
void FindShares(const std::vector<HostLoad>& loads,
                std::vector<int64_t>* shares);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_LAYOUT_H_

#include "ucx/algorithms/layout.h"

#include <algorithm>
#include <bit>
#include <map>

namespace commsched::ucx {

Layout::Layout(const std::vector<int>& keys)
    : host_of_(keys.size()), index_of_(keys.size()), node_of_(keys.size()) {
  std::map<int, int> hosts;
  for (int rank = 0; rank < size(); ++rank) {
    const auto [found, is_new] =
        hosts.try_emplace(keys[Index(rank)], num_hosts());
    if (is_new) ranks_.emplace_back();
    host_of_[Index(rank)] = found->second;
    std::vector<int>& ranks = ranks_[Index(found->second)];
    index_of_[Index(rank)] = static_cast<int>(ranks.size());
    ranks.push_back(rank);
  }
  if (size() > 0) FindNodes(0, size());
  FindPlaces();
}

bool Layout::AreOnOneHost(int begin, int end) const {
  for (int rank = begin; rank < end; ++rank) {
    if (!ShareHost(begin, rank)) return false;
  }
  return true;
}

void Layout::FindPlaces() {
  for (const std::vector<int>& ranks : ranks_) {
    first_place_.push_back(static_cast<int>(rank_at_.size()));
    most_ranks_per_host_ =
        std::max(most_ranks_per_host_, static_cast<int>(ranks.size()));
    for (const int rank : ranks) {
      const auto place = static_cast<int>(rank_at_.size());
      places_are_ranks_ = places_are_ranks_ && rank == place;
      rank_at_.push_back(rank);
    }
  }
  first_place_.push_back(size());
  const auto are_blocks_on_hosts = [&](int block) {
    for (int begin = 0; begin < size(); begin += block) {
      if (!AreOnOneHost(begin, std::min(begin + block, size()))) return false;
    }
    return true;
  };
  while (block_ < size() && are_blocks_on_hosts(2 * block_)) block_ *= 2;
}

void Layout::FindNodes(int begin, int end) {
  if (AreOnOneHost(begin, end)) {
    for (int rank = begin; rank < end; ++rank) {
      node_of_[Index(rank)] = {begin, end};
    }
    return;
  }
  const auto half =
      static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  FindNodes(begin, begin + half);
  FindNodes(begin + half, end);
}

namespace {

// What a share must be between, for no direction to carry more than `most`.
struct Bounds {
  int64_t least = 0;
  int64_t most = kWholeShare;

  void Keep(const LinkLoad& load, int64_t limit) {
    const int64_t left = limit - load.fixed * kWholeShare;
    if (load.slope > 0) {
      most = std::min(most, left < 0 ? -1 : left / load.slope);
    } else if (load.slope < 0 && left < 0) {
      least = std::max(least, (left + load.slope + 1) / load.slope);
    } else if (left < 0) {
      most = -1;
    }
  }
};

Bounds BoundsOf(const HostLoad& host, int64_t limit) {
  Bounds bounds;
  bounds.Keep(host.out, limit);
  bounds.Keep(host.in, limit);
  return bounds;
}

struct Sums {
  int64_t least = 0;
  int64_t most = 0;
  bool can_be = true;
};

Sums SumsOf(const std::vector<HostLoad>& loads, int64_t limit) {
  Sums sums;
  for (const HostLoad& host : loads) {
    const Bounds bounds = BoundsOf(host, limit);
    sums.least += bounds.least;
    sums.most += bounds.most;
    sums.can_be = sums.can_be && bounds.least <= bounds.most;
  }
  sums.can_be =
      sums.can_be && sums.least <= kWholeShare && sums.most >= kWholeShare;
  return sums;
}

}  // namespace

int64_t LeastLoad(const std::vector<HostLoad>& loads) {
  int64_t high = 0;  // What all of it on one host takes, or more.
  for (const HostLoad& host : loads) {
    for (const LinkLoad& load : {host.out, host.in}) {
      high = std::max(high, load.fixed + std::max<int64_t>(load.slope, 0));
    }
  }
  high *= kWholeShare;
  for (int64_t low = 0; low < high;) {
    const int64_t middle = low + (high - low) / 2;
    if (SumsOf(loads, middle).can_be) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

void FindShares(const std::vector<HostLoad>& loads,
                std::vector<int64_t>* shares) {
  const int64_t high = LeastLoad(loads);
  // Between their bounds, all as far.
  const Sums sums = SumsOf(loads, high);
  const int64_t room = sums.most - sums.least;
  int64_t left = kWholeShare;
  shares->clear();
  for (const HostLoad& host : loads) {
    const Bounds bounds = BoundsOf(host, high);
    int64_t share = bounds.least;
    if (room > 0) {
      __extension__ typedef __int128 Wide;
      share += static_cast<int64_t>(Wide{bounds.most - bounds.least} *
                                    (kWholeShare - sums.least) / room);
    }
    shares->push_back(share);
    left -= share;
  }
  // What was rounded down.
  *std::max_element(shares->begin(), shares->end()) += left;
}

}  // namespace commsched::ucx

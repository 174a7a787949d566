#include "ucx/algorithms/tree_shape.h"

#include <algorithm>
#include <bit>

namespace commsched::ucx {
namespace {

bool Has(Node node, int rank) { return node.begin <= rank && rank < node.end; }

// The binomial tree over 0..size-1 with root 0: the parent of i is i without
// its lowest bit, and below i are i..EndBelow(i)-1.
int LowestBit(int i) { return i & -i; }
int ParentOf(int i) { return i - LowestBit(i); }
int EndBelow(int i, int size) {
  return i == 0 ? size : std::min(i + LowestBit(i), size);
}

template <typename Each>
void ForChildren(int i, int size, const Each& each) {
  const int end = EndBelow(i, size);
  for (auto bit = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
       bit != 0; bit /= 2) {
    if (i + bit >= end || (i != 0 && bit >= LowestBit(i))) continue;
    each(i + bit, EndBelow(i + bit, size));
  }
}

void AddChild(Fan* fan, int rank, int begin, int end) {
  fan->children[static_cast<size_t>(fan->num_children++)] = {rank, begin, end};
}

// Ranks of `host`, beginning with number `first` of them, in a binomial tree.
void AddHostFan(const Layout& layout, int host, int first, int rank, Fan* fan) {
  const std::vector<int>& ranks = layout.RanksOf(host);
  const auto size = static_cast<int>(ranks.size());
  const auto rank_of = [&](int i) {
    return ranks[static_cast<size_t>((i + first) % size)];
  };
  const int place = layout.FirstPlaceOf(host);
  const int i = (layout.IndexOf(rank) - first + size) % size;
  if (i != 0) {
    fan->parent = rank_of(ParentOf(i));
    fan->begin = place + i;
    fan->end = place + EndBelow(i, size);
  }
  ForChildren(i, size, [&](int child, int end) {
    AddChild(fan, rank_of(child), place + child, place + end);
  });
}

}  // namespace

SumPlace FindSumPlace(Node whole, int rank, int root) {
  const auto summer_of = [&](Node node) {
    return Has(node, root) ? root : node.begin;
  };
  SumPlace place;
  bool found = false;
  std::array<Node, kMostLevels> behind;
  int num_behind = 0;
  for (Node node = whole;;) {
    if (!found && summer_of(node) == rank) {
      place.node = node;
      found = true;
    }
    if (node.size() == 1) break;
    const auto half = static_cast<int>(
        std::bit_floor(static_cast<unsigned>(node.size() - 1)));
    const Node left = {node.begin, node.begin + half};
    const Node right = {node.begin + half, node.end};
    const bool is_left = Has(left, rank);
    if (!found) {
      place.parent = summer_of(node);
    } else if (is_left) {
      behind[static_cast<size_t>(num_behind++)] = right;
    } else {
      place.pieces[static_cast<size_t>(place.num_pieces++)] = left;
    }
    node = is_left ? left : right;
  }
  place.pieces[static_cast<size_t>(place.num_pieces++)] = {rank, rank + 1};
  while (num_behind != 0) {
    place.pieces[static_cast<size_t>(place.num_pieces++)] =
        behind[static_cast<size_t>(--num_behind)];
  }
  return place;
}

Fan FindFan(const Layout& layout, int rank, int root) {
  const int num_hosts = layout.num_hosts();
  const int root_host = layout.HostOf(root);
  const auto host_of = [&](int i) { return (i + root_host) % num_hosts; };
  const auto first_of = [&](int i) {
    return i == 0 ? root : layout.RanksOf(host_of(i))[0];
  };
  const int host = layout.HostOf(rank);
  const int i = (host - root_host + num_hosts) % num_hosts;
  Fan fan;
  if (first_of(i) == rank) {
    if (i != 0) fan.parent = first_of(ParentOf(i));
    fan.begin = layout.FirstPlaceOf(host);
    fan.end = layout.FirstPlaceOf(
        std::min(host + EndBelow(i, num_hosts) - i, num_hosts));
    ForChildren(i, num_hosts, [&](int child, int end) {
      const int child_host = host_of(child);
      AddChild(
          &fan, first_of(child), layout.FirstPlaceOf(child_host),
          layout.FirstPlaceOf(std::min(child_host + end - child, num_hosts)));
    });
  }
  AddHostFan(layout, host, i == 0 ? layout.IndexOf(root) : 0, rank, &fan);
  return fan;
}

void MarkJoinPeers(const Layout& layout, int rank, std::vector<bool>* peers) {
  const Fan fan = FindJoinFan(layout, rank);
  if (fan.parent != kNobody) (*peers)[static_cast<size_t>(fan.parent)] = true;
  for (int i = 0; i < fan.num_children; ++i) {
    const Fan::Child& child = fan.children[static_cast<size_t>(i)];
    (*peers)[static_cast<size_t>(child.rank)] = true;
  }
}

Fan FindHostFan(const Layout& layout, int rank) {
  const int host = layout.HostOf(rank);
  Fan fan;
  fan.begin = layout.FirstPlaceOf(host);
  fan.end = layout.FirstPlaceOf(host + 1);
  AddHostFan(layout, host, 0, rank, &fan);
  return fan;
}

Fan FindBlockFan(const Layout& layout, int block, int rank) {
  const int first = rank / block * block;
  const int size = std::min(block, layout.size() - first);
  const int place = layout.PlaceOf(first);
  const int i = rank - first;
  Fan fan;
  if (i != 0) fan.parent = first + ParentOf(i);
  fan.begin = place + i;
  fan.end = place + EndBelow(i, size);
  ForChildren(i, size, [&](int child, int end) {
    AddChild(&fan, first + child, place + child, place + end);
  });
  return fan;
}

}  // namespace commsched::ucx

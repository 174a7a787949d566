// Who gives what to whom in a launch over several hosts, so that each byte
// crosses a link once.
//
// A result, or what is gathered or broadcast, is cut into parts, each of which
// has an owner. Inputs of a part go to its owner: those of another host as sums
// of the tree's nodes that are on it, each made by one of the node's ranks, or
// as they are where that is no more bytes. From the owner they go to the ranks
// of its host and to one of each other host, which hands them on there. Some of
// what is gathered goes by way of a third host (relays.h).
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_ROUTES_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_ROUTES_H_

#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

// One way of a message: the other rank, and what it is.
struct Hop {
  static constexpr int kNobody = -1;

  int peer = kNobody;
  Phase phase = kInputs;
  bool exists() const { return peer != kNobody; }
};

// Thread-safe.
class Routes {
 public:
  // Of launches of a kind, root and type. `layout` must outlive it.
  Routes(const Layout& layout, const commsched_launch_t& launch)
      : Routes(layout, ShapeOf(launch, layout.size())) {}
  Routes(const Layout& layout, const LaunchShape& shape);

  // Whom `rank` gives its input for what `owner` owns. Nobody, if it keeps it.
  Hop InputTo(int rank, int owner) const;
  // Of whom `rank` gets the result that `owner` owns. Nobody, if it does not,
  // or has it.
  Hop ResultFrom(int rank, int owner) const;
  // Whether a rank on another host than the owner hands the result on.
  bool HandsOn(int rank, int owner) const;
  // Which rank of a host gets, for the host, what `owner` owns.
  int GetterAt(int host, int owner) const;

  // Of whom `rank` gets what `owner` owns and sends by way of host `via`,
  // another one than its own.
  Hop RelayedFrom(int rank, int owner, int via) const;
  // Whether a rank of a third host hands it on.
  bool HandsOnRelayed(int rank, int owner, int via) const;

  // Calls each(node, is_partial, rank, phase) for the pieces of the sum that
  // `owner` owns, in their order: `rank` has or sends it.
  template <typename Each>
  void ForPieces(int owner, const Each& each) const {
    for (int rank = 0; rank < layout_.size();) {
      const Node node = layout_.NodeOf(rank);
      if (!layout_.ShareHost(rank, owner) && IsSummedUp(node)) {
        each(node, true, SummerOf(node, owner), kPartials);
        rank = node.end;
        continue;
      }
      each(Node{rank, rank + 1}, false, rank, kInputs);
      ++rank;
    }
  }

  // Whether the sum of a node travels instead of its inputs.
  bool IsSummedUp(Node node) const {
    return node.size() > 1 &&
           partial_bytes_ <=
               static_cast<uint64_t>(node.size()) * element_bytes_;
  }
  // Which of its ranks makes it for `owner`.
  int SummerOf(Node node, int owner) const {
    return node.begin + layout_.IndexOf(owner) % node.size();
  }

  // Bytes that cross each host's link, per element of an all-reduce or reduce,
  // by the share of it that the host owns; of a reduce-scatter those of inputs.
  void FindLoads(std::vector<HostLoad>* loads) const;
  // In how many pieces a host's ranks send what they have for another host, of
  // the host with most.
  uint32_t MostPieces() const;
  // How many inputs, or as many bytes, an owner may get of one element.
  uint64_t MostInputs() const;

 private:
  // Of one element, all that the ranks of a host have for another host.
  int64_t PieceBytes(int host) const;
  int64_t AllPieceBytes() const;
  HostLoad LoadOf(int host, int64_t all_piece_bytes) const;

  const Layout& layout_;
  const commsched_collective_t kind_;
  const int root_;
  const uint64_t element_bytes_;
  const uint64_t partial_bytes_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_ROUTES_H_

// Where a rank stands in the trees that small launches go by.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_TREE_SHAPE_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_TREE_SHAPE_H_

#include <array>
#include <vector>

#include "ucx/algorithms/layout.h"

namespace commsched::ucx {

inline constexpr int kNobody = -1;
// More than the levels of a tree of any group.
inline constexpr int kMostLevels = 32;

// Up: a node of the summing tree (commsched/plugin.h) is summed up by the root
// of the sum, if that is one of its ranks, else by its first rank. A rank sends
// the sum of the largest node that it sums up to who sums up the next larger.
struct SumPlace {
  Node node;  // The largest.
  int parent = kNobody;
  // What it is the sum of, in the order of the sum: this rank's own position,
  // and nodes that their first ranks send.
  std::array<Node, kMostLevels> pieces;
  int num_pieces = 0;
};
// Of the sum of `whole`, a node with `rank` and `root` in it.
SumPlace FindSumPlace(Node whole, int rank, int root);

// Down: a binomial tree over hosts, and one over the ranks of each.
struct Fan {
  // A child, and the places (Layout) of all ranks below it, if the root is rank
  // 0 or the first one of its host or block.
  struct Child {
    int rank = 0;
    int begin = 0;
    int end = 0;
  };

  int parent = kNobody;
  std::array<Child, 2 * kMostLevels> children;  // Those with most ranks first.
  int num_children = 0;
  int begin = 0;  // Places of this rank and those below it.
  int end = 0;
};
Fan FindFan(const Layout& layout, int rank, int root);
// The tree by which a communicator is joined (group_join.h).
inline Fan FindJoinFan(const Layout& layout, int rank) {
  return FindFan(layout, rank, 0);
}
// Marks, in `peers` by rank of the group, whom it connects a rank with.
void MarkJoinPeers(const Layout& layout, int rank, std::vector<bool>* peers);
// Of the host's ranks alone, and of those of a block (Layout::block()).
Fan FindHostFan(const Layout& layout, int rank);
Fan FindBlockFan(const Layout& layout, int block, int rank);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_TREE_SHAPE_H_

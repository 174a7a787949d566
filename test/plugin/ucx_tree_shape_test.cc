// The trees that small launches of `ucx` go by.
#include <algorithm>
#include <vector>

#include "comm/reduce.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/algorithm.h"
#include "plugins/ucx/algorithms/tree_shape.h"

namespace commsched {
namespace {

using ucx::Fan;
using ucx::kNobody;
using ucx::Layout;
using ucx::Node;
using ucx::SumPlace;

std::vector<int> PerHost(int size, int per_host) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / per_host);
  return hosts;
}

std::vector<int> RoundRobin(int size, int num_hosts) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank % num_hosts);
  return hosts;
}

TEST(UcxSumPlaceTest, PiecesAreNodesOfTheTreeOneBehindTheOther) {
  for (int size = 1; size <= 40; ++size) {
    for (int root = 0; root < size; ++root) {
      for (int rank = 0; rank < size; ++rank) {
        const SumPlace place = ucx::FindSumPlace({0, size}, rank, root);
        EXPECT_TRUE(IsTreeNode(place.node.begin, place.node.end, size));
        int end = place.node.begin;
        for (int i = 0; i < place.num_pieces; ++i) {
          const Node piece = place.pieces[i];
          EXPECT_TRUE(IsTreeNode(piece.begin, piece.end, size));
          EXPECT_EQ(piece.begin, end);
          end = piece.end;
        }
        EXPECT_EQ(end, place.node.end);
      }
    }
  }
}

TEST(UcxSumPlaceTest, APieceIsTheNodeThatItsFirstRankSumsUpForThisOne) {
  for (int size = 1; size <= 40; ++size) {
    for (int root = 0; root < size; ++root) {
      int num_sent = 0;
      for (int rank = 0; rank < size; ++rank) {
        const SumPlace place = ucx::FindSumPlace({0, size}, rank, root);
        EXPECT_EQ(place.parent == kNobody, rank == root);
        EXPECT_LE(place.num_pieces - 1, ucx::CeilLog2(size));
        for (int i = 0; i < place.num_pieces; ++i) {
          const Node piece = place.pieces[i];
          if (piece.begin == rank) continue;
          const SumPlace below =
              ucx::FindSumPlace({0, size}, piece.begin, root);
          EXPECT_EQ(below.parent, rank);
          EXPECT_EQ(below.node.begin, piece.begin);
          EXPECT_EQ(below.node.end, piece.end);
          ++num_sent;
        }
      }
      EXPECT_EQ(num_sent, size - 1);
    }
  }
}

// Walks down from `rank`: how many ranks there are, and links between hosts.
struct Walk {
  int num_ranks = 0;
  int num_links = 0;
  int most_children = 0;
};

void WalkDown(const Layout& layout, int rank, int root, Walk* walk) {
  const Fan fan = ucx::FindFan(layout, rank, root);
  ++walk->num_ranks;
  walk->most_children = std::max(walk->most_children, fan.num_children);
  for (int i = 0; i < fan.num_children; ++i) {
    const int child = fan.children[i].rank;
    EXPECT_EQ(ucx::FindFan(layout, child, root).parent, rank);
    if (!layout.ShareHost(rank, child)) ++walk->num_links;
    WalkDown(layout, child, root, walk);
  }
}

TEST(UcxFanTest, EveryHostIsReachedOnceAndEveryRank) {
  for (int size = 1; size <= 40; ++size) {
    for (const std::vector<int>& hosts :
         {PerHost(size, 1), PerHost(size, 3), PerHost(size, 4),
          RoundRobin(size, 3)}) {
      const Layout layout(hosts);
      const int most = ucx::CeilLog2(layout.num_hosts()) +
                       ucx::CeilLog2(layout.most_ranks_per_host());
      for (int root = 0; root < size; ++root) {
        Walk walk;
        WalkDown(layout, root, root, &walk);
        EXPECT_EQ(walk.num_ranks, size);
        EXPECT_EQ(walk.num_links, layout.num_hosts() - 1);
        EXPECT_LE(walk.most_children, most);
      }
    }
  }
}

// The places of a rank are its own and those of the ranks below it.
void ExpectPlaces(const Layout& layout, int rank, int begin, int end) {
  const Fan fan = ucx::FindFan(layout, rank, 0);
  EXPECT_EQ(fan.begin, begin);
  EXPECT_EQ(fan.end, end);
  EXPECT_EQ(layout.PlaceOf(rank), begin);
  std::vector<bool> below(end - begin);
  below[0] = true;
  for (int i = 0; i < fan.num_children; ++i) {
    const Fan::Child& child = fan.children[i];
    for (int place = child.begin; place < child.end; ++place) {
      EXPECT_FALSE(below.at(place - begin));
      below.at(place - begin) = true;
    }
    ExpectPlaces(layout, child.rank, child.begin, child.end);
  }
  EXPECT_EQ(std::count(below.begin(), below.end(), true), end - begin);
}

TEST(UcxFanTest, PlacesBelowARankFollowItsOwn) {
  for (int size = 1; size <= 40; ++size) {
    ExpectPlaces(Layout(PerHost(size, 1)), 0, 0, size);
    ExpectPlaces(Layout(PerHost(size, 3)), 0, 0, size);
    ExpectPlaces(Layout(RoundRobin(size, 3)), 0, 0, size);
  }
}

TEST(UcxLayoutTest, BlocksAreTheLargestThatEveryHostHolds) {
  EXPECT_EQ(Layout({0, 0, 1, 1}).block(), 2);
  EXPECT_EQ(Layout({0, 1, 0, 1}).block(), 1);
  EXPECT_EQ(Layout({0, 0, 0, 0}).block(), 4);
  EXPECT_EQ(Layout({0, 0, 0}).block(), 4);
  EXPECT_EQ(Layout({0, 0, 0, 1}).block(), 1);
  EXPECT_EQ(Layout({0, 0, 0, 0, 1, 1}).block(), 4);
}

TEST(UcxLayoutTest, PlacesAreRanksHostByHost) {
  const Layout layout({7, 3, 7, 3, 3});
  EXPECT_EQ(layout.FirstPlaceOf(1), 2);
  EXPECT_EQ(layout.FirstPlaceOf(2), 5);
  for (int place = 0; place < 5; ++place) {
    EXPECT_EQ(layout.PlaceOf(layout.RankAt(place)), place);
  }
  EXPECT_EQ(layout.RankAt(2), 1);
  EXPECT_FALSE(layout.PlacesAreRanks());
  EXPECT_TRUE(Layout({0, 0, 1}).PlacesAreRanks());
}

}  // namespace
}  // namespace commsched

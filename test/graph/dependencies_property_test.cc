// Dependencies of random graphs against brute force: three steps written out,
// every access resolved to the elements that it touches on each rank, every
// pair of conflicting accesses compared with the transitive closure.
#include <bitset>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/dependencies.h"
#include "graph/place_groups.h"
#include "graph/region.h"
#include "test/graph/builders.h"
#include "test/graph/random_graph.h"
#include "test/support/property.h"

namespace commsched {
namespace {

constexpr int kNumOps = 14;
constexpr int kNumSteps = 3;
constexpr int kNumNodes = kNumOps * kNumSteps;

using Elements = std::set<uint64_t>;
using Reachable = std::vector<std::bitset<kNumNodes>>;

// The elements of an access on the rank that has position rank[g] in group g.
// Written from the words of the public header, not with ResolveRegion().
Elements ElementsOf(const Graph& graph, const Op& op, const Access& access,
                    const std::vector<int>& rank) {
  const uint64_t total = graph.buffer(access.buffer).count;
  uint64_t begin = 0;
  uint64_t end = total;
  if (access.region.kind == RegionKind::kRange) {
    begin = access.region.offset;
    end = begin + access.region.count;
  } else if (access.region.kind == RegionKind::kShard) {
    const int own = rank[access.region.group.value()];
    const std::vector<uint64_t>& counts = op.collective.counts;
    const uint64_t equal = total / graph.group(access.region.group).size;
    for (int i = 0; i < own; ++i) begin += counts.empty() ? equal : counts[i];
    end = begin + (counts.empty() ? equal : counts[own]);
  }
  Elements elements;
  const Region& region = access.region;
  if (region.kind == RegionKind::kTile) {
    for (uint64_t row = 0; row < region.rows; ++row) {
      for (uint64_t i = 0; i < region.count; ++i) {
        elements.insert(region.offset + row * region.stride + i);
      }
    }
    return elements;
  }
  for (uint64_t i = begin; i < end; ++i) elements.insert(i);
  return elements;
}

bool Intersect(const Elements& a, const Elements& b) {
  for (const uint64_t element : a) {
    if (b.contains(element)) return true;
  }
  return false;
}

bool ArePlacedTogether(const Graph& graph, const Access& a, const Access& b) {
  const uint32_t group = graph.buffer(a.buffer).place_group;
  return group != 0 && group == graph.buffer(b.buffer).place_group;
}

// Whether the two ops touch a common element, one of them writing, on `rank`.
bool Conflict(const Graph& graph, const Op& a, const Op& b,
              const std::vector<int>& rank) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      // Buffers of a place group are one memory.
      if (x.buffer != y.buffer && ArePlacedTogether(graph, x, y)) return true;
      if (x.buffer != y.buffer) continue;
      if (!Writes(x.mode) && !Writes(y.mode)) continue;
      if (Intersect(ElementsOf(graph, a, x, rank),
                    ElementsOf(graph, b, y, rank))) {
        return true;
      }
    }
  }
  return false;
}

Reachable ClosureOf(const Dependencies& dependencies) {
  Reachable reachable(kNumNodes);
  for (const Dependency& edge : dependencies.edges) {
    for (int step = 0; step + edge.distance < kNumSteps; ++step) {
      reachable[step * kNumOps + edge.from.value()].set(
          (step + edge.distance) * kNumOps + edge.to.value());
    }
  }
  for (int via = 0; via < kNumNodes; ++via) {
    for (int from = 0; from < kNumNodes; ++from) {
      if (reachable[from][via]) reachable[from] |= reachable[via];
    }
  }
  return reachable;
}

// All combinations of positions in the groups.
std::vector<std::vector<int>> AllRanks(const Graph& graph) {
  std::vector<std::vector<int>> ranks = {{}};
  for (const Group& group : graph.groups()) {
    std::vector<std::vector<int>> longer;
    for (const auto& prefix : ranks) {
      for (int i = 0; i < group.size; ++i) {
        longer.push_back(prefix);
        longer.back().push_back(i);
      }
    }
    ranks = longer;
  }
  return ranks;
}

// How many of the conflicts between ops, over the three steps, no path orders.
int NumUnordered(const Graph& graph, const Dependencies& dependencies) {
  const Reachable reachable = ClosureOf(dependencies);
  const auto ranks = AllRanks(graph);
  int unordered = 0;
  for (int i = 0; i < kNumOps; ++i) {
    for (int j = 0; j < kNumOps; ++j) {
      bool conflict = false;
      for (const auto& rank : ranks) {
        conflict =
            conflict || Conflict(graph, graph.ops()[i], graph.ops()[j], rank);
      }
      if (!conflict) continue;
      for (int distance = i < j ? 0 : 1; distance < kNumSteps; ++distance) {
        if (!reachable[i][distance * kNumOps + j]) ++unordered;
      }
    }
  }
  return unordered;
}

// Whether one of the op's accesses to `buffer` does what the hazard says.
bool Touches(const Op& op, BufferId buffer, bool writes) {
  for (const Access& access : op.accesses) {
    if (access.buffer == buffer &&
        (writes ? Writes(access.mode) : Reads(access.mode))) {
      return true;
    }
  }
  return false;
}

bool IsExplicit(const Graph& graph, const Dependency& edge) {
  const ExplicitEdge wanted = {edge.from, edge.to, edge.distance};
  for (const ExplicitEdge& given : graph.edges()) {
    if (given == wanted) return true;
  }
  for (const OpId after : graph.op(edge.to).after) {
    if (edge.distance == 0 && after == edge.from) return true;
  }
  return false;
}

// In a buffer with tiles of several strides a tile counts as its span.
bool HasSeveralStrides(const Graph& graph, BufferId buffer) {
  std::set<uint64_t> strides;
  for (const Op& op : graph.ops()) {
    for (const Access& access : op.accesses) {
      if (access.buffer == buffer && access.region.rows > 1) {
        // Without gaps it is a range.
        if (access.region.stride > access.region.count) {
          strides.insert(access.region.stride);
        }
      }
    }
  }
  return strides.size() > 1;
}

// Whether conflicts between the two must, or may, be seen.
bool MayMeet(const Graph& graph, const Access& a, const Access& b) {
  if (MayOverlap(graph, a, b)) return true;
  if (a.buffer != b.buffer || !HasSeveralStrides(graph, a.buffer)) return false;
  const Extent x = ResolveRegion(graph, a, 0, {});
  const Extent y = ResolveRegion(graph, b, 0, {});
  return x.offset < y.end() && y.offset < x.end();
}

// An edge must come from somewhere: an explicit one from the graph, a hazard
// from two accesses that may overlap, in declared order.
bool IsJustified(const Graph& graph, const Dependency& edge) {
  if (edge.hazard == Hazard::kExplicit) return IsExplicit(graph, edge);
  if (edge.distance == 0 && edge.from >= edge.to) return false;
  const bool from_writes = edge.hazard != Hazard::kWriteAfterRead;
  const bool to_writes = edge.hazard != Hazard::kReadAfterWrite;
  for (const Access& x : graph.op(edge.from).accesses) {
    for (const Access& y : graph.op(edge.to).accesses) {
      if (x.buffer != y.buffer && y.buffer == edge.buffer &&
          ArePlacedTogether(graph, x, y)) {
        return Touches(graph.op(edge.to), edge.buffer, /*writes=*/true);
      }
      if (x.buffer == edge.buffer && MayMeet(graph, x, y) &&
          Touches(graph.op(edge.from), edge.buffer, from_writes) &&
          Touches(graph.op(edge.to), edge.buffer, to_writes)) {
        return true;
      }
    }
  }
  return false;
}

// A random graph that ends with three buffers of a place group, each of which
// is written and then read.
Graph GraphWithTurns(uint64_t seed) {
  Graph graph = RandomGraph(seed, kNumOps - 6);
  for (int i = 0; i < 3; ++i) {
    Buffer buffer = F32(absl::StrCat("turn", i), 16 + i);
    buffer.place_group = 9;
    const BufferId id = graph.AddBuffer(buffer).value();
    for (AccessMode mode : {AccessMode::kWrite, AccessMode::kRead}) {
      const std::string name = absl::StrCat("op", graph.ops().size());
      EXPECT_OK(graph.AddOp(Compute(name, {Whole(id, mode)})));
    }
  }
  return graph;
}

// How many edges lead from one buffer of a place group to another.
int NumTakenOver(const Graph& graph, const Dependencies& dependencies) {
  int taken_over = 0;
  for (const Dependency& edge : dependencies.edges) {
    if (edge.hazard == Hazard::kExplicit) continue;
    const bool own = Touches(graph.op(edge.from), edge.buffer, true) ||
                     Touches(graph.op(edge.from), edge.buffer, false);
    taken_over += own ? 0 : 1;
  }
  return taken_over;
}

void ExpectSortedAndUnique(const Dependencies& dependencies) {
  const auto key = [](const Dependency& edge) {
    return std::make_tuple(edge.to, edge.from, edge.distance);
  };
  for (size_t i = 1; i < dependencies.edges.size(); ++i) {
    EXPECT_LT(key(dependencies.edges[i - 1]), key(dependencies.edges[i]));
  }
}

void ExpectIndexed(const Graph& graph, const Dependencies& dependencies) {
  size_t listed = 0;
  for (uint32_t i = 0; i < graph.ops().size(); ++i) {
    for (const Dependency& edge : dependencies.Into(OpId(i))) {
      EXPECT_EQ(edge.to, OpId(i));
      ++listed;
    }
  }
  EXPECT_EQ(listed, dependencies.edges.size());
}

void ExpectTopological(const Dependencies& dependencies) {
  for (const Dependency& edge : dependencies.edges) {
    if (edge.distance != 0) continue;
    EXPECT_LT(dependencies.position[edge.from.value()],
              dependencies.position[edge.to.value()]);
  }
}

TEST(DependenciesPropertyTest, EveryConflictIsOrderedAndEveryEdgeIsJustified) {
  int accepted = 0;
  int edges = 0;
  int taken_over = 0;
  const int cases = test::PropertyCases(2000);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    const Graph graph =
        seed % 2 == 0 ? RandomGraph(seed, kNumOps) : GraphWithTurns(seed);
    const auto dependencies = InferDependencies(graph);
    // A backward edge may contradict a hazard; the graph is then refused.
    if (!dependencies.ok()) {
      if (!CheckPlaceGroups(graph).ok()) continue;
      ASSERT_THAT(dependencies, StatusIs(absl::StatusCode::kInvalidArgument,
                                         "ops within the step: 'op"));
      continue;
    }
    ++accepted;
    taken_over += NumTakenOver(graph, *dependencies);
    edges += dependencies->edges.size();
    ASSERT_EQ(NumUnordered(graph, *dependencies), 0);
    for (const Dependency& edge : dependencies->edges) {
      ASSERT_TRUE(IsJustified(graph, edge))
          << graph.op(edge.from).name << " -> " << graph.op(edge.to).name;
    }
    ExpectSortedAndUnique(*dependencies);
    ExpectIndexed(graph, *dependencies);
    ExpectTopological(*dependencies);
  }
  EXPECT_GT(accepted, cases / 4);
  EXPECT_GT(taken_over, cases / 4);
  EXPECT_GT(edges, accepted);
}

// Guards the oracle: it must notice an edge that is gone. Most edges order
// something that nothing else does; an edge between a shard and what lies in
// another rank's part orders nothing real.
TEST(DependenciesPropertyTest, OracleNoticesThatAnEdgeIsGone) {
  int removed = 0;
  int noticed = 0;
  const int cases = test::PropertyCases(20);
  for (int i = 0; i < cases; ++i) {
    const Graph graph = RandomGraph(test::PropertySeed() + i, kNumOps);
    const auto all = InferDependencies(graph);
    if (!all.ok()) continue;
    for (size_t gone = 0; gone < all->edges.size(); ++gone) {
      if (all->edges[gone].hazard == Hazard::kExplicit) continue;
      Dependencies fewer = *all;
      fewer.edges.erase(fewer.edges.begin() + gone);
      ++removed;
      noticed += NumUnordered(graph, fewer) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(noticed, removed / 4) << "of " << removed;
}

}  // namespace
}  // namespace commsched

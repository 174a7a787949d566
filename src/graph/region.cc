#include "graph/region.h"

#include <cassert>
#include <numeric>

namespace commsched {
namespace {

Extent ResolveShard(uint64_t total, int size, int rank,
                    const std::vector<uint64_t>& counts) {
  assert(rank >= 0 && rank < size);
  if (counts.empty()) {
    const uint64_t part = total / static_cast<uint64_t>(size);
    return {part * static_cast<uint64_t>(rank), part};
  }
  assert(counts.size() == static_cast<size_t>(size));
  const auto own = counts.begin() + rank;
  return {std::accumulate(counts.begin(), own, uint64_t{0}), *own};
}

}  // namespace

Extent ResolveRegion(const Graph& graph, const Access& access, int rank,
                     const std::vector<uint64_t>& counts) {
  const uint64_t total = graph.buffer(access.buffer).count;
  switch (access.region.kind) {
    case RegionKind::kWhole:
      return {0, total};
    case RegionKind::kRange:
      return {access.region.offset, access.region.count};
    case RegionKind::kShard:
      return ResolveShard(total, graph.group(access.region.group).size, rank,
                          counts);
    case RegionKind::kTile:
      break;  // Graph::AddOp refuses it.
  }
  return {};
}

bool MayOverlap(const Graph& graph, const Access& a, const Access& b) {
  if (a.buffer != b.buffer) return false;
  if (a.region.kind == RegionKind::kShard ||
      b.region.kind == RegionKind::kShard) {
    return true;
  }
  const Extent x = ResolveRegion(graph, a, 0, {});
  const Extent y = ResolveRegion(graph, b, 0, {});
  return x.offset < y.offset + y.count && y.offset < x.offset + x.count;
}

}  // namespace commsched

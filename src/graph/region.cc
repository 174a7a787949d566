#include "graph/region.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace commsched {
namespace {

// Beyond this, rows are not compared one by one.
constexpr uint64_t kMaxRowsCompared = 256;

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

// Whether [begin, end) has elements of `tile`: whether its first row that does
// not end before `begin` starts before `end`.
bool RangeMeets(uint64_t begin, uint64_t end, const Extent& tile) {
  const uint64_t first_end = tile.offset + tile.count;
  if (begin < first_end) return tile.offset < end;
  if (tile.rows == 1) return false;
  const uint64_t row = (begin - first_end) / tile.stride + 1;
  return row < tile.rows && tile.offset + row * tile.stride < end;
}

// `a` and `b` have the same stride, and `a` does not begin after `b`. Row i of
// `a` meets row j of `b` only if i - j is one of two neighbouring numbers, and
// not negative, as a row has elements of at most one stride.
bool EqualStridesMeet(const Extent& a, const Extent& b) {
  const uint64_t ahead = (b.offset - a.offset) / a.stride;  // whole rows
  const uint64_t shift = (b.offset - a.offset) % a.stride;
  // The first row of `b` begins `shift` after the row `ahead` of `a`, and
  // ends, at the earliest, in the gap before the row after that.
  if (shift < a.count && ahead < a.rows) return true;
  return shift + b.count > a.stride && ahead + 1 < a.rows;
}

bool TilesMeet(const Extent& a, const Extent& b) {
  if (a.end() <= b.offset || b.end() <= a.offset) return false;
  if (a.stride == b.stride) {
    return a.offset <= b.offset ? EqualStridesMeet(a, b)
                                : EqualStridesMeet(b, a);
  }
  const Extent& fewer = a.rows <= b.rows ? a : b;
  const Extent& other = a.rows <= b.rows ? b : a;
  if (fewer.rows > kMaxRowsCompared) return true;
  for (uint64_t row = 0; row < fewer.rows; ++row) {
    const uint64_t begin = fewer.offset + row * fewer.stride;
    if (RangeMeets(begin, begin + fewer.count, other)) return true;
  }
  return false;
}

}  // namespace

Extent ResolveRegion(const Graph& graph, const Access& access, int rank,
                     const std::vector<uint64_t>& counts) {
  const uint64_t total = graph.buffer(access.buffer).count;
  const Region& region = access.region;
  switch (region.kind) {
    case RegionKind::kWhole:
      return {0, total};
    case RegionKind::kRange:
      return {region.offset, region.count};
    case RegionKind::kShard:
      return ResolveShard(total, graph.group(region.group).size, rank, counts);
    case RegionKind::kTile:
      return {region.offset, region.count, region.rows, region.stride};
  }
  return {};
}

Extent PartOf(const Extent& side, uint64_t before, uint64_t elements) {
  assert(before % side.rows == 0 && elements % side.rows == 0);
  return {side.offset + before / side.rows, elements / side.rows, side.rows,
          side.stride};
}

Extent Joined(const Extent& extent) {
  if (extent.rows > 1 && extent.stride > extent.count) return extent;
  return {extent.offset, extent.elements()};
}

bool MayOverlap(const Graph& graph, const Access& a, const Access& b) {
  if (a.buffer != b.buffer) return false;
  if (a.region.kind == RegionKind::kShard ||
      b.region.kind == RegionKind::kShard) {
    return true;
  }
  const Extent x = Joined(ResolveRegion(graph, a, 0, {}));
  const Extent y = Joined(ResolveRegion(graph, b, 0, {}));
  if (x.rows == 1) return RangeMeets(x.offset, x.end(), y);
  if (y.rows == 1) return RangeMeets(y.offset, y.end(), x);
  return TilesMeet(x, y);
}

}  // namespace commsched

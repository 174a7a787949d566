#include "test/support/place_groups.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "graph/collective_shape.h"

namespace commsched::test {
namespace {

struct Stay {
  bool used = false;
  bool begins_whole = true;
  int first = 0;
  int last = 0;
};

bool WritesAll(const Graph& graph, const Access& access) {
  const Region& region = access.region;
  if (access.mode != AccessMode::kWrite) return false;
  return region.kind == RegionKind::kWhole ||
         (region.kind == RegionKind::kRange &&
          region.count == graph.buffer(access.buffer).count);
}

std::vector<Stay> StaysOf(const Graph& graph) {
  std::vector<Stay> stays(graph.buffers().size());
  std::vector<int> first(stays.size(), -1);
  for (int i = 0; i < static_cast<int>(graph.ops().size()); ++i) {
    const Op& op = graph.ops()[i];
    const bool pair =
        op.kind == OpKind::kCollective && IsPointToPoint(op.collective.kind);
    for (const Access& access : op.accesses) {
      const uint32_t b = access.buffer.value();
      Stay& stay = stays[b];
      if (first[b] < 0) first[b] = i;
      if (first[b] == i && !WritesAll(graph, access)) stay.begins_whole = false;
      const int begin = i - (pair ? 1 : 0);
      const int end = i + (pair ? 1 : 0);
      stay.first = stay.used ? std::min(stay.first, begin) : begin;
      stay.last = stay.used ? std::max(stay.last, end) : end;
      stay.used = true;
    }
  }
  return stays;
}

bool Apart(const Stay& a, const Stay& b) {
  return a.last < b.first || b.last < a.first;
}

}  // namespace

Graph WithPlaceGroups(const Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x91ace);
  const std::vector<Stay> stays = StaysOf(graph);
  std::vector<uint32_t> group_of(stays.size(), 0);
  std::vector<std::vector<Stay>> groups;
  for (uint32_t b = 0; b < stays.size(); ++b) {
    const bool owned = graph.buffers()[b].ownership == Ownership::kOwned;
    if (!owned || random() % 4 == 0) continue;
    // Who is never alive fits anywhere.
    const bool fits = !stays[b].used || stays[b].begins_whole;
    if (!fits) continue;
    size_t g = groups.empty() ? 0 : random() % groups.size();
    const auto apart = [&](const Stay& other) {
      return !stays[b].used || Apart(stays[b], other);
    };
    const bool joins = !groups.empty() &&
                       std::all_of(groups[g].begin(), groups[g].end(), apart);
    if (!joins) {
      g = groups.size();
      groups.emplace_back();
    }
    if (stays[b].used) groups[g].push_back(stays[b]);
    group_of[b] = static_cast<uint32_t>(3 + 7 * g);
  }
  Graph grouped;
  for (const Group& group : graph.groups()) {
    if (!grouped.AddGroup(group.name, group.size).ok()) std::abort();
  }
  for (uint32_t b = 0; b < stays.size(); ++b) {
    Buffer buffer = graph.buffers()[b];
    buffer.place_group = group_of[b];
    if (!grouped.AddBuffer(buffer).ok()) std::abort();
  }
  for (const Op& op : graph.ops()) {
    if (!grouped.AddOp(op).ok()) std::abort();
  }
  if (!grouped.AddEdges(graph.edges()).ok()) std::abort();
  return grouped;
}

}  // namespace commsched::test

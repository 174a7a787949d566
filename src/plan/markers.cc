#include "plan/markers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace commsched {
namespace {

// An op before a marker, and how many step boundaries lie between: 0 or 1.
using Source = std::pair<OpId, int>;
using Sources = std::vector<Source>;  // sorted, unique

// Adds `more`, `distance` further away, to `to`. False if nothing was new.
bool Merge(const Sources& more, int distance, Sources* to) {
  const size_t before = to->size();
  for (const auto& [op, own] : more) {
    to->emplace_back(op, std::min(1, own + distance));
  }
  std::sort(to->begin(), to->end());
  to->erase(std::unique(to->begin(), to->end()), to->end());
  return to->size() != before;
}

// The ops before each marker, through any number of markers.
std::map<OpId, Sources> FindSources(const Graph& graph,
                                    const std::vector<Dependency>& edges) {
  auto is_marker = [&](OpId op) {
    return graph.op(op).kind == OpKind::kMarker;
  };
  std::map<OpId, Sources> sources;
  // Until nothing is new: edges from marker to marker may be loop-carried.
  for (bool changed = true; changed;) {
    changed = false;
    for (const Dependency& edge : edges) {
      if (!is_marker(edge.to)) continue;
      const Sources from =
          is_marker(edge.from) ? sources[edge.from] : Sources{{edge.from, 0}};
      changed |= Merge(from, edge.distance, &sources[edge.to]);
    }
  }
  return sources;
}

auto Key(const Dependency& edge) {
  return std::make_tuple(edge.to, edge.from, edge.distance);
}

void IndexEdges(Dependencies* dependencies) {
  std::vector<uint32_t>& first = dependencies->first;
  std::fill(first.begin(), first.end(), 0);
  for (const Dependency& edge : dependencies->edges) {
    ++first[edge.to.value() + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
}

}  // namespace

void DissolveMarkers(const Graph& graph, Dependencies* dependencies) {
  if (!graph.has_markers()) return;
  auto is_marker = [&](OpId op) {
    return graph.op(op).kind == OpKind::kMarker;
  };
  std::vector<Dependency>& edges = dependencies->edges;
  auto touches_marker = [&](const Dependency& edge) {
    return is_marker(edge.from) || is_marker(edge.to);
  };
  const std::map<OpId, Sources> sources = FindSources(graph, edges);
  std::vector<Dependency> direct;
  for (const Dependency& edge : edges) {
    if (!is_marker(edge.from) || is_marker(edge.to)) continue;
    const auto found = sources.find(edge.from);
    if (found == sources.end()) continue;
    for (const auto& [op, distance] : found->second) {
      const bool carried = distance + edge.distance > 0;
      direct.push_back({.from = op,
                        .to = edge.to,
                        .distance = uint8_t{carried},
                        .hazard = Hazard::kExplicit,
                        .buffer = BufferId()});
    }
  }
  // Hazards first, so that they win over the explicit edge of an equal pair.
  edges.erase(std::remove_if(edges.begin(), edges.end(), touches_marker),
              edges.end());
  edges.insert(edges.end(), direct.begin(), direct.end());
  std::stable_sort(
      edges.begin(), edges.end(),
      [](const Dependency& a, const Dependency& b) { return Key(a) < Key(b); });
  edges.erase(std::unique(edges.begin(), edges.end(),
                          [](const Dependency& a, const Dependency& b) {
                            return Key(a) == Key(b);
                          }),
              edges.end());
  IndexEdges(dependencies);
}

}  // namespace commsched

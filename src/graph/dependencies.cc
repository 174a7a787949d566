// Two iterations of the step are walked in declared order. The first finds what
// orders ops within a step; the second meets what the first left behind, which
// is what crosses the step boundary. Two are enough: what the second iteration
// leaves behind is what the first did, one step later.
#include "graph/dependencies.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "graph/buffer_history.h"
#include "graph/topological_order.h"

namespace commsched {
namespace {

// The region as conflicts see it. A shard is another part on every rank and may
// overlap anything (MayOverlap), which is what the whole buffer does.
Extent ExtentOf(const Graph& graph, const Access& access) {
  if (access.region.kind == RegionKind::kRange ||
      access.region.kind == RegionKind::kTile) {
    return Joined(ResolveRegion(graph, access, 0, {}));
  }
  return {0, graph.buffer(access.buffer).count};
}

// Of equal (from, distance) the first in this order is kept: what flows between
// the two says more than that somebody asked for the edge.
int RankOf(Hazard hazard) {
  switch (hazard) {
    case Hazard::kReadAfterWrite:
      return 0;
    case Hazard::kWriteAfterRead:
      return 1;
    case Hazard::kWriteAfterWrite:
      return 2;
    case Hazard::kExplicit:
      break;
  }
  return 3;
}

// Objects, as the calls of functions would not be inlined where these sort.
constexpr auto kBefore = [](const Dependency& a, const Dependency& b) {
  if (a.from != b.from) return a.from < b.from;
  if (a.distance != b.distance) return a.distance < b.distance;
  if (a.hazard != b.hazard) return RankOf(a.hazard) < RankOf(b.hazard);
  return a.buffer < b.buffer;
};

constexpr auto kSameTriple = [](const Dependency& a, const Dependency& b) {
  return a.from == b.from && a.to == b.to && a.distance == b.distance;
};

// Edges that were added beside the ops, to be taken in the order of their
// targets.
struct EdgesByTarget {
  explicit EdgesByTarget(const Graph& graph) : edges(graph.edges()) {
    std::sort(edges.begin(), edges.end(),
              [](auto& a, auto& b) { return a.to < b.to; });
  }
  std::vector<ExplicitEdge> edges;
  size_t next = 0;
};

class Inference {
 public:
  explicit Inference(const Graph& graph)
      : graph_(graph),
        num_ops_(static_cast<uint32_t>(graph.ops().size())),
        edges_(graph) {
    histories_.reserve(graph.buffers().size());
    for (const Buffer& buffer : graph.buffers()) {
      histories_.emplace_back(buffer.count);
    }
    if (graph.has_tiles()) MakeGrids();
  }

  absl::StatusOr<Dependencies> Run() {
    // Most graphs have fewer than two hazards per op within a step.
    within_.reserve(2 * size_t{num_ops_});
    result_.edges.reserve(3 * size_t{num_ops_});
    for (uint32_t i = 0; i < num_ops_; ++i) WalkFirstIteration(OpId(i));
    next_within_ = 0;
    for (uint32_t i = 0; i < num_ops_; ++i) WalkSecondIteration(OpId(i));
    RETURN_IF_ERROR(FindOrder());
    return std::move(result_);
  }

 private:
  void MakeGrids() {
    std::vector<std::vector<Extent>> regions(histories_.size());
    for (const Op& op : graph_.ops()) {
      for (const Access& access : op.accesses) {
        regions[access.buffer.value()].push_back(ExtentOf(graph_, access));
      }
    }
    for (uint32_t i = 0; i < histories_.size(); ++i) {
      auto grid = TileGrid::Make(regions[i], graph_.buffers()[i].count);
      if (grid) histories_[i].UseGrid(*std::move(grid));
    }
  }

  // Calls found(time, hazard, buffer) for all that op must come after.
  template <typename Found>
  void RecordAccesses(OpId op, uint32_t time, Found&& found) {
    const auto record = [&](const Access& access, auto method) {
      conflicts_.clear();
      (histories_[access.buffer.value()].*method)(ExtentOf(graph_, access),
                                                  time, conflicts_);
      for (const auto& conflict : conflicts_) found(conflict, access.buffer);
    };
    for (const Access& access : graph_.op(op).accesses) {
      if (Reads(access.mode)) record(access, &BufferHistory::Read);
    }
    for (const Access& access : graph_.op(op).accesses) {
      if (Writes(access.mode)) record(access, &BufferHistory::Write);
    }
  }

  void WalkFirstIteration(OpId op) {
    RecordAccesses(op, op.value(),
                   [&](const BufferHistory::Conflict& c, BufferId buffer) {
                     within_.push_back({.from = OpId(c.time),
                                        .to = op,
                                        .distance = 0,
                                        .hazard = c.hazard,
                                        .buffer = buffer});
                   });
  }

  // Conflicts inside the second iteration are those of the first again.
  void WalkSecondIteration(OpId op) {
    std::vector<Dependency>& edges = result_.edges;
    const size_t begin = edges.size();
    for (; next_within_ < within_.size() && within_[next_within_].to == op;
         ++next_within_) {
      edges.push_back(within_[next_within_]);
    }
    RecordAccesses(op, num_ops_ + op.value(),
                   [&](const BufferHistory::Conflict& c, BufferId buffer) {
                     if (c.time >= num_ops_) return;
                     edges.push_back({.from = OpId(c.time),
                                      .to = op,
                                      .distance = 1,
                                      .hazard = c.hazard,
                                      .buffer = buffer});
                   });
    AddExplicitEdges(op);
    const auto own = std::next(edges.begin(), static_cast<int64_t>(begin));
    std::sort(own, edges.end(), kBefore);
    edges.erase(std::unique(own, edges.end(), kSameTriple), edges.end());
  }

  void AddExplicitEdges(OpId op) {
    const auto add = [&](OpId from, int distance) {
      result_.edges.push_back({.from = from,
                               .to = op,
                               .distance = distance,
                               .hazard = Hazard::kExplicit,
                               .buffer = BufferId()});
      has_backward_ = has_backward_ || (distance == 0 && from >= op);
    };
    for (const OpId after : graph_.op(op).after) add(after, 0);
    for (; edges_.next < edges_.edges.size() &&
           edges_.edges[edges_.next].to == op;
         ++edges_.next) {
      add(edges_.edges[edges_.next].from, edges_.edges[edges_.next].distance);
    }
  }

  absl::Status FindOrder() {
    if (has_backward_) {
      std::vector<Precedence> precedences;
      for (const Dependency& edge : result_.edges) {
        if (edge.distance == 0) precedences.push_back({edge.from, edge.to});
      }
      ASSIGN_OR_RETURN(result_.order, TopologicalOrder(graph_, precedences));
    } else {
      // Hazards follow the declared order, and so does every explicit edge.
      result_.order.reserve(num_ops_);
      for (uint32_t i = 0; i < num_ops_; ++i) result_.order.emplace_back(i);
    }
    result_.position.resize(num_ops_);
    for (uint32_t i = 0; i < num_ops_; ++i) {
      result_.position[result_.order[i].value()] = i;
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const uint32_t num_ops_;
  std::vector<BufferHistory> histories_;            // by BufferId
  std::vector<BufferHistory::Conflict> conflicts_;  // of one access
  std::vector<Dependency> within_;  // distance 0, hazards only, by target
  size_t next_within_ = 0;
  EdgesByTarget edges_;
  bool has_backward_ = false;
  Dependencies result_;
};

}  // namespace

absl::StatusOr<Dependencies> InferDependencies(const Graph& graph) {
  return Inference(graph).Run();
}

}  // namespace commsched

// Two iterations of the step are walked in declared order. The first finds what
// orders ops within a step; the second meets what the first left behind, which
// is what crosses the step boundary. Two are enough: what the second iteration
// leaves behind is what the first did, one step later.
#include "graph/dependencies.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "graph/buffer_history.h"
#include "graph/place_groups.h"
#include "graph/sort_edges.h"
#include "graph/topological_order.h"

namespace commsched {
namespace {

// A shard is another part on every rank and may overlap anything (MayOverlap),
// which is what the whole buffer does.
bool IsWhole(const Access& access) {
  return access.region.kind == RegionKind::kWhole ||
         access.region.kind == RegionKind::kShard;
}

// The region as conflicts see it.
Extent ExtentOf(const Graph& graph, const Access& access) {
  if (IsWhole(access)) return {0, graph.buffer(access.buffer).count};
  return Joined(ResolveRegion(graph, access, 0, {}));
}

// An edge into the op at hand. As one number, so that edges sort by (from,
// distance), and of equal ones that comes first which is kept: what flows
// between the two says more than that somebody asked for the edge.
class InEdge {
 public:
  InEdge(OpId from, int distance, Hazard hazard, BufferId buffer)
      : bits_(uint64_t{from.value()} << kFrom |
              static_cast<uint64_t>(distance) << kDistance |
              RankOf(hazard) << kRank | buffer.value()) {}
  // What the graph asks for.
  InEdge(OpId from, int distance)
      : InEdge(from, distance, Hazard::kExplicit, BufferId(0)) {}

  Dependency To(OpId to) const {
    constexpr Hazard kByRank[] = {Hazard::kReadAfterWrite,
                                  Hazard::kWriteAfterRead,
                                  Hazard::kWriteAfterWrite, Hazard::kExplicit};
    const Hazard hazard = kByRank[bits_ >> kRank & 3];
    const uint32_t buffer =
        static_cast<uint32_t>(bits_) & (Graph::kMaxBuffers - 1);
    return {
        .from = OpId(static_cast<uint32_t>(bits_ >> kFrom)),
        .to = to,
        .distance = static_cast<uint8_t>(bits_ >> kDistance & 1),
        .hazard = hazard,
        .buffer = hazard == Hazard::kExplicit ? BufferId() : BufferId(buffer)};
  }

  bool SameAs(InEdge other) const {
    return bits_ >> kDistance == other.bits_ >> kDistance;
  }
  friend bool operator<(InEdge a, InEdge b) { return a.bits_ < b.bits_; }

 private:
  // The lowest bit of each; the buffer is below.
  static constexpr int kRank = 24;
  static constexpr int kDistance = 26;
  static constexpr int kFrom = 27;
  static_assert(Graph::kMaxBuffers == uint64_t{1} << kRank);
  static_assert(Graph::kMaxOps <= uint64_t{1} << 32);

  static uint64_t RankOf(Hazard hazard) {
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

  uint64_t bits_;
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
    if (graph.has_place_groups()) places_.emplace(graph);
  }

  absl::StatusOr<Dependencies> Run() {
    within_.reserve(3 * size_t{num_ops_});
    within_end_.reserve(num_ops_);
    for (uint32_t i = 0; i < num_ops_; ++i) WalkFirstIteration(OpId(i));
    // About as many edges cross the boundary between steps.
    result_.edges.reserve(2 * within_.size());
    result_.first.reserve(size_t{num_ops_} + 1);
    for (uint32_t i = 0; i < num_ops_; ++i) WalkSecondIteration(OpId(i));
    result_.first.push_back(static_cast<uint32_t>(result_.edges.size()));
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

  // Calls found(conflict, buffer) for all that op must come after.
  template <typename Found>
  void RecordAccesses(OpId op, uint32_t time, Found&& found) {
    const auto record = [&](const Access& access, bool writes) {
      BufferHistory& history = histories_[access.buffer.value()];
      // Conflicts with what the second iteration has done are not wanted.
      if (history.KnowsOnlySince(num_ops_)) return;
      Record(access, writes, time, &history);
      for (const auto& conflict : conflicts_) found(conflict, access.buffer);
    };
    const std::vector<Access>& accesses = graph_.op(op).accesses;
    for (const Access& access : accesses) {
      if (Reads(access.mode)) record(access, /*writes=*/false);
    }
    for (const Access& access : accesses) {
      if (Writes(access.mode)) record(access, /*writes=*/true);
    }
    if (places_) RecordPlaces(accesses, time, found);
  }

  template <typename Found>
  void RecordPlaces(const std::vector<Access>& accesses, uint32_t time,
                    Found&& found) {
    for (const Access& access : accesses) {
      const bool rewrites = Writes(access.mode) && IsWhole(access);
      for (uint32_t user : places_->Use(access.buffer, time, rewrites)) {
        found(BufferHistory::Conflict{user, Hazard::kWriteAfterRead},
              access.buffer);
      }
    }
  }

  // Fills conflicts_.
  void Record(const Access& access, bool writes, uint32_t time,
              BufferHistory* history) {
    conflicts_.clear();
    if (IsWhole(access)) {
      writes ? history->WriteAll(time, conflicts_)
             : history->ReadAll(time, conflicts_);
      return;
    }
    const Extent extent = ExtentOf(graph_, access);
    writes ? history->Write(extent, time, conflicts_)
           : history->Read(extent, time, conflicts_);
  }

  void WalkFirstIteration(OpId op) {
    RecordAccesses(op, op.value(),
                   [&](const BufferHistory::Conflict& c, BufferId buffer) {
                     within_.emplace_back(OpId(c.time), 0, c.hazard, buffer);
                   });
    within_end_.push_back(static_cast<uint32_t>(within_.size()));
  }

  // Conflicts inside the second iteration are those of the first again.
  void WalkSecondIteration(OpId op) {
    const uint32_t i = op.value();
    own_.assign(within_.begin() + (i == 0 ? 0 : within_end_[i - 1]),
                within_.begin() + within_end_[i]);
    RecordAccesses(op, num_ops_ + i,
                   [&](const BufferHistory::Conflict& c, BufferId buffer) {
                     if (c.time >= num_ops_) return;
                     own_.emplace_back(OpId(c.time), 1, c.hazard, buffer);
                   });
    AddExplicitEdges(op);
    SortEdges(own_.begin(), own_.end());
    result_.first.push_back(static_cast<uint32_t>(result_.edges.size()));
    for (size_t e = 0; e < own_.size(); ++e) {
      if (e > 0 && own_[e].SameAs(own_[e - 1])) continue;
      result_.edges.push_back(own_[e].To(op));
    }
  }

  void AddExplicitEdges(OpId op) {
    const auto add = [&](OpId from, int distance) {
      own_.emplace_back(from, distance);
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
  absl::optional<PlaceHistory> places_;             // if there are groups
  std::vector<InEdge> within_;        // distance 0, hazards only, by target
  std::vector<uint32_t> within_end_;  // by OpId, in within_
  std::vector<InEdge> own_;           // of one op
  EdgesByTarget edges_;
  bool has_backward_ = false;
  Dependencies result_;
};

}  // namespace

absl::StatusOr<Dependencies> InferDependencies(const Graph& graph) {
  RETURN_IF_ERROR(CheckPlaceGroups(graph));
  return Inference(graph).Run();
}

}  // namespace commsched

#include "plan/lanes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "graph/sort_edges.h"

namespace commsched {
namespace {

// Where a node runs: its lane (compute lanes first, then communication lanes)
// and how many nodes of the lane precede it in the step.
struct Slot {
  uint32_t lane = 0;
  uint32_t position = 0;
};

// An edge into a node. As one number, so that the edges of a node sort into the
// order in which they are looked at: those of graph and arena before the
// window's before the serial schedule's; then the latest producer first.
class InEdge {
 public:
  InEdge() = default;
  InEdge(uint32_t from, int distance, WaitCause cause)
      : bits_(RankOf(cause) << 35 | static_cast<uint64_t>(distance) << 34 |
              uint64_t{~from} << 2 | static_cast<uint64_t>(cause)) {}

  // Position in the sequence.
  uint32_t from() const { return ~static_cast<uint32_t>(bits_ >> 2); }
  int distance() const { return static_cast<int>(bits_ >> 34 & 1); }
  WaitCause cause() const { return static_cast<WaitCause>(bits_ & 3); }

  // The causes may differ.
  bool SameAs(InEdge other) const {
    return from() == other.from() && distance() == other.distance();
  }
  friend bool operator<(InEdge a, InEdge b) { return a.bits_ < b.bits_; }

 private:
  static uint64_t RankOf(WaitCause cause) {
    switch (cause) {
      case WaitCause::kHazard:
      case WaitCause::kArena:
        return 0;
      case WaitCause::kWindow:
        return 1;
      case WaitCause::kSerial:
        return 2;
    }
    return 2;
  }

  uint64_t bits_ = 0;
};

// Edges by position of their target.
class EdgesByTarget {
 public:
  EdgesByTarget(const Sequence& sequence, absl::Span<const Edge> edges)
      : first_(sequence.nodes.size() + 2, 0), edges_(edges.size()) {
    // Entry i + 1 counts up to where entry i ends.
    for (const Edge& each : edges) ++first_[sequence.PositionOf(each.to) + 2];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    for (const Edge& each : edges) {
      edges_[first_[sequence.PositionOf(each.to) + 1]++] =
          InEdge(sequence.PositionOf(each.from), each.distance, each.cause);
    }
  }

  absl::Span<const InEdge> Into(uint32_t p) const {
    return {edges_.data() + first_[p], first_[p + 1] - first_[p]};
  }

 private:
  std::vector<uint32_t> first_;
  std::vector<InEdge> edges_;
};

class WaitAssigner {
 public:
  WaitAssigner(const Sequence& sequence, Plan* plan)
      : sequence_(sequence),
        plan_(*plan),
        num_lanes_(plan->num_compute_lanes + plan->num_comm_lanes) {}

  void Run(absl::Span<const Edge> more) {
    PlaceInLanes();
    CollectEdges(more);
    const size_t num_nodes = sequence_.nodes.size();
    clocks_.assign(2 * num_nodes * num_lanes_, 0);
    lane_end_.assign(2 * num_lanes_ * num_lanes_, 0);
    best_.resize(num_lanes_);
    for (uint32_t step = 0; step < 2; ++step) {
      for (uint32_t p = 0; p < num_nodes; ++p) Visit(step, p);
    }
  }

 private:
  using ClockEntry = uint32_t;  // nodes of the lane, counted over two steps

  // How much of a lane the wait that knows most of it knows, and the next.
  struct Best {
    static constexpr size_t kNobody = ~size_t{0};
    ClockEntry count = 0, next = 0;
    size_t wait = kNobody;
  };

  bool IsCompute(uint32_t p) const {
    return slots_[p].lane < plan_.num_compute_lanes;
  }

  void PlaceInLanes() {
    slots_.resize(sequence_.nodes.size());
    lane_size_.assign(num_lanes_, 0);
    for (size_t p = 0; p < slots_.size(); ++p) {
      const NodeRef node = sequence_.nodes[p];
      const uint32_t lane =
          node.kind == NodeRef::Kind::kOp
              ? plan_.nodes[plan_.node_of_op[node.index]].lane
              : plan_.num_compute_lanes + plan_.launches[node.index].lane;
      slots_[p] = {lane, lane_size_[lane]++};
    }
  }

  // Fills edges_: of each node, in the order in which they are looked at, one
  // edge per producer and distance.
  void CollectEdges(absl::Span<const Edge> more) {
    const size_t num_nodes = sequence_.nodes.size();
    const EdgesByTarget others(sequence_, more);
    edges_.reserve(plan_.dependencies.edges.size() + more.size());
    first_edge_.reserve(num_nodes + 1);
    for (uint32_t p = 0; p < num_nodes; ++p) {
      const auto first = static_cast<ptrdiff_t>(edges_.size());
      first_edge_.push_back(static_cast<uint32_t>(first));
      AddDependencies(sequence_.nodes[p]);
      const auto asked = others.Into(p);
      edges_.insert(edges_.end(), asked.begin(), asked.end());
      SortEdges(edges_.begin() + first, edges_.end());
      edges_.erase(std::unique(edges_.begin() + first, edges_.end(),
                               [](InEdge a, InEdge b) { return a.SameAs(b); }),
                   edges_.end());
    }
    first_edge_.push_back(static_cast<uint32_t>(edges_.size()));
  }

  // Every piece of a split collective depends on what the whole does; who
  // depends on the whole depends on its last piece, as the pieces complete in
  // order.
  void AddDependencies(NodeRef node) {
    if (node.kind == NodeRef::Kind::kOp) {
      AddDependencies(OpId(node.index));
      return;
    }
    for (OpId op : plan_.launches[node.index].members) AddDependencies(op);
  }
  void AddDependencies(OpId op) {
    for (const Dependency& each : plan_.dependencies.Into(op)) {
      edges_.emplace_back(sequence_.of_op[each.from.value()], each.distance,
                          WaitCause::kHazard);
    }
  }

  ClockEntry* Clock(uint32_t step, uint32_t p) {
    return &clocks_[(step * sequence_.nodes.size() + p) * num_lanes_];
  }
  // What is known once the whole lane of `step`, so far, is complete.
  ClockEntry* LaneEnd(uint32_t step, uint32_t lane) {
    return &lane_end_[(step * num_lanes_ + lane) * num_lanes_];
  }

  void Join(const ClockEntry* known) {
    const uint32_t num_lanes = num_lanes_;
    ClockEntry* start = start_;
    for (uint32_t lane = 0; lane < num_lanes; ++lane) {
      start[lane] = std::max(start[lane], known[lane]);
    }
  }

  ClockEntry CountOf(uint32_t step, uint32_t p) const {
    const Slot slot = slots_[p];
    return step * lane_size_[slot.lane] + slot.position + 1;
  }

  bool Known(uint32_t step, uint32_t p) const {
    return start_[slots_[p].lane] >= CountOf(step, p);
  }

  void Visit(uint32_t step, uint32_t p) {
    start_ = Clock(step, p);
    if (IsCompute(p) && step == 1) EnterNextStep(slots_[p].lane);
    JoinSameLane(step, p);
    if (step == 0) {
      KeepForHost(p);
      DecideWaits(0, p);
    } else {
      JoinWaits(1, p);
      DecideWaits(1, p);
    }
    Complete(step, p);
  }

  // Every `after` of a step precedes every `before` of the next on the host, so
  // a compute lane passes the boundary as a whole.
  void EnterNextStep(uint32_t lane) {
    Join(LaneEnd(0, lane));
    start_[lane] = std::max(start_[lane], lane_size_[lane]);
  }

  // Host-side sets of the node at `p`, from all its edges of distance 0.
  void KeepForHost(uint32_t p) {
    const NodeRef node = sequence_.nodes[p];
    if (node.kind == NodeRef::Kind::kLaunch) {
      OpIdList& producers = plan_.launches[node.index].producers;
      ForEachProducer(p, [&](NodeRef from) {
        if (from.kind == NodeRef::Kind::kOp) producers.emplace_back(from.index);
      });
      SortUnique(&producers);
      return;
    }
    ComputeNode& to = plan_.nodes[plan_.node_of_op[node.index]];
    ForEachProducer(p, [&](NodeRef from) {
      if (from.kind == NodeRef::Kind::kOp) {
        to.after.emplace_back(from.index);
      } else {
        to.needs.emplace_back(from.index);
      }
    });
    SortUnique(&to.after);
    SortUnique(&to.needs);
  }

  // Visits the producers of the same step.
  template <typename Visitor>
  void ForEachProducer(uint32_t p, Visitor visit) const {
    for (uint32_t e = first_edge_[p]; e < first_edge_[p + 1]; ++e) {
      if (edges_[e].distance() != 0) continue;
      visit(sequence_.nodes[edges_[e].from()]);
    }
  }

  template <typename Ids>
  static void SortUnique(Ids* ids) {
    if (ids->size() < 2) return;
    std::sort(ids->begin(), ids->end());
    ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  }

  bool SameComputeLane(uint32_t from, uint32_t to) const {
    return IsCompute(to) && slots_[from].lane == slots_[to].lane;
  }

  void JoinSameLane(uint32_t step, uint32_t p) {
    if (!IsCompute(p)) return;
    for (uint32_t e = first_edge_[p]; e < first_edge_[p + 1]; ++e) {
      if (edges_[e].distance() != 0) continue;
      const uint32_t from = edges_[e].from();
      if (SameComputeLane(from, p)) Join(Clock(step, from));
    }
  }

  WaitList& WaitsOf(uint32_t p) {
    const NodeRef node = sequence_.nodes[p];
    return node.kind == NodeRef::Kind::kOp
               ? plan_.nodes[plan_.node_of_op[node.index]].waits
               : plan_.launches[node.index].waits;
  }

  // The waits of distance 0, decided in the first sweep.
  void JoinWaits(uint32_t step, uint32_t p) {
    for (const Wait& wait : WaitsOf(p)) {
      Join(Clock(step, sequence_.PositionOf(wait.producer)));
    }
  }

  void DecideWaits(int distance, uint32_t p) {
    const uint32_t step = static_cast<uint32_t>(distance);
    for (uint32_t e = first_edge_[p]; e < first_edge_[p + 1]; ++e) {
      const InEdge edge = edges_[e];
      if (edge.distance() != distance) continue;
      const uint32_t from = edge.from();
      if (SameComputeLane(from, p)) continue;
      const uint32_t from_step = step - static_cast<uint32_t>(distance);
      if (Known(from_step, from)) {
        ++plan_.num_waits_implied;
        continue;
      }
      WaitsOf(p).push_back({sequence_.nodes[from], distance, edge.cause()});
      Join(Clock(from_step, from));
    }
    DropImplied(step, distance, p);
  }

  // A wait that was kept may be implied by one that was kept after it: a hazard
  // by the window, for one. Per lane the two that know most tell for all.
  void DropImplied(uint32_t step, int distance, uint32_t p) {
    WaitList& waits = WaitsOf(p);
    if (waits.size() < 2) return;
    std::fill(best_.begin(), best_.end(), Best());
    auto from_step = [&](const Wait& wait) {
      return step - static_cast<uint32_t>(wait.distance);
    };
    for (size_t w = 0; w < waits.size(); ++w) {
      const ClockEntry* known =
          Clock(from_step(waits[w]), sequence_.PositionOf(waits[w].producer));
      for (uint32_t lane = 0; lane < num_lanes_; ++lane) {
        Best& most = best_[lane];
        if (known[lane] > most.count) {
          most = {known[lane], most.count, w};
        } else {
          most.next = std::max(most.next, known[lane]);
        }
      }
    }
    WaitList kept;
    for (size_t w = 0; w < waits.size(); ++w) {
      const uint32_t from = sequence_.PositionOf(waits[w].producer);
      const Best& most = best_[slots_[from].lane];
      const ClockEntry others = most.wait == w ? most.next : most.count;
      const bool implied = waits[w].distance == distance &&
                           others >= CountOf(from_step(waits[w]), from);
      if (!implied) kept.push_back(waits[w]);
    }
    plan_.num_waits_implied += waits.size() - kept.size();
    waits = std::move(kept);
  }

  void Complete(uint32_t step, uint32_t p) {
    const Slot slot = slots_[p];
    const ClockEntry own = CountOf(step, p);
    ClockEntry* lane_end = LaneEnd(step, slot.lane);
    if (!IsCompute(p)) {
      // A lane runs in order: all that completed before on it is known, and so
      // is what that knew.
      Join(lane_end);
      if (step == 1) Join(LaneEnd(0, slot.lane));
      start_[slot.lane] = own;
    } else if (start_[slot.lane] == own - 1) {
      start_[slot.lane] = own;
    }
    for (uint32_t lane = 0; lane < num_lanes_; ++lane) {
      lane_end[lane] = std::max(lane_end[lane], start_[lane]);
    }
  }

  const Sequence& sequence_;
  Plan& plan_;
  const uint32_t num_lanes_;
  std::vector<InEdge> edges_;
  std::vector<uint32_t> first_edge_;  // by position of the target, and the end
  std::vector<Slot> slots_;           // by position in the sequence
  std::vector<uint32_t> lane_size_;
  std::vector<ClockEntry> clocks_;    // by step, position, lane
  std::vector<ClockEntry> lane_end_;  // by step, lane, lane
  ClockEntry* start_ = nullptr;       // of the node being visited, in clocks_
  std::vector<Best> best_;            // by lane, of that node
};

}  // namespace

std::vector<Edge> SerialEdges(const Plan& plan) {
  std::vector<Edge> edges;
  const uint32_t num_lanes = plan.num_comm_lanes;
  // The last launch of each lane, counted over two steps.
  std::vector<uint32_t> last(num_lanes, Plan::kNone);
  std::vector<int> distance(num_lanes, 1);
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    last[plan.launches[i].lane] = i;
  }
  uint32_t launch = 0;
  for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
    for (; launch < plan.launches.size() && plan.due_after[launch] <= i;
         ++launch) {
      last[plan.launches[launch].lane] = launch;
      distance[plan.launches[launch].lane] = 0;
    }
    for (uint32_t lane = 0; lane < num_lanes; ++lane) {
      if (last[lane] == Plan::kNone) continue;
      edges.push_back({.from = RefOf(LaunchId(last[lane])),
                       .to = RefOf(plan.nodes[i].op),
                       .distance = distance[lane],
                       .cause = WaitCause::kSerial});
    }
  }
  return edges;
}

void AssignWaits(const Sequence& sequence, absl::Span<const Edge> edges,
                 Plan* plan) {
  WaitAssigner(sequence, plan).Run(edges);
}

}  // namespace commsched

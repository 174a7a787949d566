#include "plan/lanes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

namespace commsched {
namespace {

// Where a node runs: its lane (compute lanes first, then communication lanes)
// and how many nodes of the lane precede it in the step.
struct Slot {
  uint32_t lane = 0;
  uint32_t position = 0;
};

class WaitAssigner {
 public:
  WaitAssigner(const Sequence& sequence, std::vector<Edge> edges, Plan* plan)
      : sequence_(sequence), plan_(*plan), edges_(std::move(edges)) {
    num_lanes_ = plan_.num_compute_lanes + plan_.num_comm_lanes;
    PlaceInLanes();
    SortEdges();
  }

  void Run() {
    const size_t num_nodes = sequence_.nodes.size();
    clocks_.assign(2 * num_nodes * num_lanes_, 0);
    lane_end_.assign(2 * num_lanes_ * num_lanes_, 0);
    start_.resize(num_lanes_);
    for (uint32_t step = 0; step < 2; ++step) {
      for (uint32_t p = 0; p < num_nodes; ++p) Visit(step, p);
    }
  }

 private:
  using ClockEntry = uint32_t;  // nodes of the lane, counted over two steps

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

  // By target; then graph and arena before window before serial; then the
  // latest producer first. One edge per producer and distance remains.
  void SortEdges() {
    struct Keyed {
      uint32_t from;
      uint8_t rank, distance;
      uint32_t index;
    };
    auto rank = [](WaitCause cause) -> uint8_t {
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
    };
    // By target in linear time; what remains are short lists.
    std::vector<uint32_t> begin(sequence_.nodes.size() + 2, 0);
    for (const Edge& edge : edges_) ++begin[sequence_.PositionOf(edge.to) + 2];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<Keyed> keyed(edges_.size());
    for (uint32_t i = 0; i < edges_.size(); ++i) {
      keyed[begin[sequence_.PositionOf(edges_[i].to) + 1]++] = {
          sequence_.PositionOf(edges_[i].from), rank(edges_[i].cause),
          static_cast<uint8_t>(edges_[i].distance), i};
    }
    std::vector<Edge> sorted;
    sorted.reserve(edges_.size());
    first_edge_.assign(1, 0);
    for (size_t p = 0; p < sequence_.nodes.size(); ++p) {
      const auto first = keyed.begin() + begin[p];
      const auto last = keyed.begin() + begin[p + 1];
      std::sort(first, last, [](const Keyed& a, const Keyed& b) {
        return std::tie(a.rank, a.distance, b.from, a.index) <
               std::tie(b.rank, b.distance, a.from, b.index);
      });
      for (auto key = first; key != last; ++key) {
        const Edge& edge = edges_[key->index];
        if (sorted.size() > first_edge_[p] && sorted.back().from == edge.from &&
            sorted.back().distance == edge.distance) {
          continue;
        }
        sorted.push_back(edge);
      }
      first_edge_.push_back(static_cast<uint32_t>(sorted.size()));
    }
    edges_ = std::move(sorted);
  }

  ClockEntry* Clock(uint32_t step, uint32_t p) {
    return &clocks_[(step * sequence_.nodes.size() + p) * num_lanes_];
  }
  // What is known once the whole lane of `step`, so far, is complete.
  ClockEntry* LaneEnd(uint32_t step, uint32_t lane) {
    return &lane_end_[(step * num_lanes_ + lane) * num_lanes_];
  }

  void Join(const ClockEntry* known) {
    for (uint32_t lane = 0; lane < num_lanes_; ++lane) {
      start_[lane] = std::max(start_[lane], known[lane]);
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
    std::fill(start_.begin(), start_.end(), 0);
    if (IsCompute(p) && step == 1) EnterNextStep(slots_[p].lane);
    if (step == 0) {
      KeepForHost(p);
      DecideWaits(0, p);
    } else {
      JoinSameLane(1, p);
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
    for (uint32_t e = first_edge_[p]; e < first_edge_[p + 1]; ++e) {
      const Edge& edge = edges_[e];
      if (edge.distance != 0) continue;
      const bool from_op = edge.from.kind == NodeRef::Kind::kOp;
      if (node.kind == NodeRef::Kind::kLaunch) {
        Launch& launch = plan_.launches[node.index];
        if (from_op) launch.producers.push_back(OpId(edge.from.index));
      } else {
        ComputeNode& to = plan_.nodes[plan_.node_of_op[node.index]];
        if (from_op) {
          to.after.push_back(OpId(edge.from.index));
        } else {
          to.needs.push_back(LaunchId(edge.from.index));
        }
      }
    }
    if (node.kind == NodeRef::Kind::kLaunch) {
      SortUnique(&plan_.launches[node.index].producers);
    } else {
      ComputeNode& to = plan_.nodes[plan_.node_of_op[node.index]];
      SortUnique(&to.after);
      SortUnique(&to.needs);
    }
    JoinSameLane(0, p);
  }

  template <typename Ids>
  static void SortUnique(Ids* ids) {
    std::sort(ids->begin(), ids->end());
    ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  }

  bool SameComputeLane(uint32_t from, uint32_t to) const {
    return IsCompute(to) && slots_[from].lane == slots_[to].lane;
  }

  void JoinSameLane(uint32_t step, uint32_t p) {
    for (uint32_t e = first_edge_[p]; e < first_edge_[p + 1]; ++e) {
      if (edges_[e].distance != 0) continue;
      const uint32_t from = sequence_.PositionOf(edges_[e].from);
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
      const Edge& edge = edges_[e];
      if (edge.distance != distance) continue;
      const uint32_t from = sequence_.PositionOf(edge.from);
      if (SameComputeLane(from, p)) continue;
      const uint32_t from_step = step - static_cast<uint32_t>(distance);
      if (Known(from_step, from)) {
        ++plan_.num_waits_implied;
        continue;
      }
      WaitsOf(p).push_back({edge.from, distance, edge.cause});
      Join(Clock(from_step, from));
    }
    DropImplied(step, distance, p);
  }

  // A wait that was kept may be implied by one that was kept after it: a hazard
  // by the window, for one. Per lane the two that know most tell for all.
  void DropImplied(uint32_t step, int distance, uint32_t p) {
    WaitList& waits = WaitsOf(p);
    if (waits.size() < 2) return;
    constexpr size_t kNobody = ~size_t{0};
    struct Best {
      ClockEntry count = 0, next = 0;
      size_t wait = kNobody;
    };
    std::vector<Best> best(num_lanes_);
    auto from_step = [&](const Wait& wait) {
      return step - static_cast<uint32_t>(wait.distance);
    };
    for (size_t w = 0; w < waits.size(); ++w) {
      const ClockEntry* known =
          Clock(from_step(waits[w]), sequence_.PositionOf(waits[w].producer));
      for (uint32_t lane = 0; lane < num_lanes_; ++lane) {
        Best& most = best[lane];
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
      const Best& most = best[slots_[from].lane];
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
      // In order: all that completed before on the lane is known, and so is
      // what it knew.
      Join(lane_end);
      if (step == 1) Join(LaneEnd(0, slot.lane));
      start_[slot.lane] = own;
    } else if (start_[slot.lane] == own - 1) {
      start_[slot.lane] = own;
    }
    std::copy(start_.begin(), start_.end(), Clock(step, p));
    for (uint32_t lane = 0; lane < num_lanes_; ++lane) {
      lane_end[lane] = std::max(lane_end[lane], start_[lane]);
    }
  }

  const Sequence& sequence_;
  Plan& plan_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_edge_;  // by position of the target
  uint32_t num_lanes_ = 0;
  std::vector<Slot> slots_;  // by position in the sequence
  std::vector<uint32_t> lane_size_;
  std::vector<ClockEntry> clocks_;    // by step, position, lane
  std::vector<ClockEntry> lane_end_;  // by step, lane, lane
  std::vector<ClockEntry> start_;     // of the node being visited
};

}  // namespace

std::vector<Edge> HazardEdges(const Plan& plan) {
  std::vector<Edge> edges;
  edges.reserve(plan.dependencies.edges.size());
  for (const Dependency& dependency : plan.dependencies.edges) {
    const LaunchId from = plan.launch_of_op[dependency.from.value()];
    Edge edge = {.from = from.valid() ? RefOf(from) : RefOf(dependency.from),
                 .to = RefOf(dependency.to),
                 .distance = dependency.distance,
                 .cause = WaitCause::kHazard};
    const auto launches = plan.LaunchesOf(dependency.to);
    if (launches.empty()) edges.push_back(edge);
    for (LaunchId to : launches) {
      edge.to = RefOf(to);
      edges.push_back(edge);
    }
  }
  return edges;
}

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

void AssignWaits(const Sequence& sequence, std::vector<Edge> edges,
                 Plan* plan) {
  WaitAssigner(sequence, std::move(edges), plan).Run();
}

}  // namespace commsched

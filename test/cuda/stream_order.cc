#include "test/cuda/stream_order.h"

#include <bitset>
#include <cstdlib>
#include <utility>

namespace commsched::test {
namespace {

// What a rank's plan does in a few steps, by itself: which accesses to the same
// bytes nothing orders on streams, which run their work one after the other.
class StreamOrder {
 public:
  StreamOrder(const DeviceJob& drawn, const Plan& plan, int rank)
      : drawn_(drawn), plan_(plan), rank_(rank) {
    std::vector<size_t> last(plan.num_comm_lanes + plan.num_compute_lanes,
                             kNone);
    for (size_t t = 0; t < kUnrolled; ++t) {
      for (const Launch& launch : plan.launches) {
        Add(t, launch.waits, AccessesOf(launch, t), &last[launch.lane]);
      }
      for (const ComputeNode& node : plan.nodes) {
        Add(t, node.waits, AccessesOf(node, t),
            &last[plan.num_comm_lanes + node.lane]);
      }
    }
    // What a step's compute ops and launches wait for may come later here.
    while (Spread()) continue;
  }

  bool HasRace() const {
    for (size_t a = 0; a < nodes_.size(); ++a) {
      for (size_t b = a + 1; b < nodes_.size(); ++b) {
        if (nodes_[a].before[b] || nodes_[b].before[a]) continue;
        if (Conflict(nodes_[a].accesses, nodes_[b].accesses)) return true;
      }
    }
    return false;
  }

 private:
  static constexpr size_t kUnrolled = 4;
  static constexpr size_t kNone = ~size_t{0};
  static constexpr size_t kMostNodes = 512;

  // Of a memory: a buffer of the caller's, one of those of a step, the arena.
  struct Access {
    size_t memory = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    bool writes = false;
  };
  struct Node {
    std::vector<Access> accesses;
    std::bitset<kMostNodes> before;
  };

  size_t per_step() const { return plan_.launches.size() + plan_.nodes.size(); }
  size_t IndexOf(const NodeRef& node) const {
    return node.kind == NodeRef::Kind::kLaunch
               ? node.index
               : plan_.launches.size() + plan_.node_of_op[node.index];
  }

  void AddRuns(const std::vector<ElementRun>& runs, size_t t,
               std::vector<Access>* accesses) const {
    const auto& buffers = plan_.graph->buffers();
    for (const ElementRun& run : runs) {
      const uint32_t b = run.buffer.value();
      size_t memory = 1 + b;
      uint64_t offset = 0;
      if (buffers[b].ownership == Ownership::kLateBound) {
        memory += (1 + t) * buffers.size();
      } else if (buffers[b].ownership == Ownership::kOwned) {
        memory = 0;
        for (const Placement& placement : plan_.placements) {
          if (placement.buffer == run.buffer) offset = placement.offset;
        }
      }
      const uint64_t begin = offset + run.begin * sizeof(int64_t);
      accesses->push_back(
          {memory, begin, begin + run.count * sizeof(int64_t), run.writes});
    }
  }
  OpId InStep(OpId op) const {
    return drawn_.job.op_in_step[drawn_.job.role_of_rank[rank_]][op.value()];
  }
  std::vector<Access> AccessesOf(const ComputeNode& node, size_t t) const {
    std::vector<Access> accesses;
    AddRuns(ElementsOfCompute(drawn_.job.step, InStep(node.op), t, rank_), t,
            &accesses);
    return accesses;
  }
  std::vector<Access> AccessesOf(const Launch& launch, size_t t) const {
    std::vector<Access> accesses;
    for (const OpId op : launch.members) {
      AddRuns(ElementsOfCollective(drawn_.job.step, InStep(op), t, rank_), t,
              &accesses);
    }
    return accesses;
  }

  void Add(size_t t, const WaitList& waits, std::vector<Access> accesses,
           size_t* last) {
    const size_t at = nodes_.size();
    if (at == kMostNodes) std::abort();
    Node& node = nodes_.emplace_back();
    node.accesses = std::move(accesses);
    if (*last != kNone) node.before.set(*last);
    *last = at;
    for (const Wait& wait : waits) {
      if (t < static_cast<size_t>(wait.distance)) continue;
      node.before.set((t - wait.distance) * per_step() +
                      IndexOf(wait.producer));
    }
  }
  bool Spread() {
    bool changed = false;
    for (Node& node : nodes_) {
      const auto was = node.before;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (was[i]) node.before |= nodes_[i].before;
      }
      changed = changed || node.before != was;
    }
    return changed;
  }
  static bool Conflict(const std::vector<Access>& a,
                       const std::vector<Access>& b) {
    for (const Access& one : a) {
      for (const Access& other : b) {
        if ((one.writes || other.writes) && one.memory == other.memory &&
            one.begin < other.end && other.begin < one.end) {
          return true;
        }
      }
    }
    return false;
  }

  const DeviceJob& drawn_;
  const Plan& plan_;
  const int rank_;
  std::vector<Node> nodes_;  // By step, launches before compute ops.
};

}  // namespace

bool HasRace(const DeviceJob& drawn, const Plans& plans) {
  for (int rank = 0; rank < drawn.job.num_ranks(); ++rank) {
    const Plan& plan = *plans[drawn.job.role_of_rank[rank]];
    if (StreamOrder(drawn, plan, rank).HasRace()) return true;
  }
  return false;
}

}  // namespace commsched::test

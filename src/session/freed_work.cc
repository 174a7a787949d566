#include "session/freed_work.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "graph/region.h"
#include "plan/sequence.h"
#include "plan/verify/happens_before.h"

namespace commsched {
namespace {

Witness WitnessOf(const Plan& plan) {
  Sequence sequence = SequenceOf(plan);
  return {std::move(sequence.nodes), std::move(sequence.of_op),
          std::move(sequence.of_launch)};
}

// What is left of the order once launches complete without having been done.
Plan WithoutLaunches(Plan plan) {
  for (ComputeNode& node : plan.nodes) {
    WaitList kept;
    for (const Wait& wait : node.waits) {
      if (wait.producer.kind == NodeRef::Kind::kOp) kept.push_back(wait);
    }
    node.waits = std::move(kept);
  }
  return plan;
}

class FreedWork {
 public:
  FreedWork(const Plan& plan, const ProgressAtFailure& progress, uint64_t first)
      : plan_(plan),
        progress_(progress),
        first_(first),
        witness_(WitnessOf(plan)),
        free_(num_steps(), std::vector<bool>(plan.nodes.size())),
        spoiled_(num_steps(), std::vector<bool>(plan.graph->ops().size())) {}

  std::vector<std::vector<bool>> Run() {
    bool any_free = false;
    for (uint64_t step = first_; step <= progress_.steps_begun; ++step) {
      any_free |= FindFree(step);
    }
    if (any_free && HaveSeveralWorkers()) {
      PrepareOrder();
      for (uint64_t step = first_; step <= progress_.steps_begun; ++step) {
        for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
          if (IsFree(i, step)) SpoilReaders(i, step);
        }
      }
    }
    return std::move(spoiled_);
  }

 private:
  size_t num_steps() const {
    return static_cast<size_t>(progress_.steps_begun + 1 - first_);
  }
  bool IsComplete(uint32_t launch, uint64_t step) const {
    return progress_.completed[launch] >= step;
  }
  bool MayRun(uint32_t node, uint64_t step) const {
    return progress_.unguarded[node] >= step;
  }
  // Steps before the first: nothing was held back.
  bool IsBehind(uint32_t node, uint64_t step) const {
    return step >= first_ && free_[static_cast<size_t>(step - first_)][node];
  }
  bool IsFree(uint32_t node, uint64_t step) const {
    return IsBehind(node, step) && MayRun(node, step);
  }
  std::vector<bool>::reference Spoiled(OpId op, uint64_t step) {
    return spoiled_[static_cast<size_t>(step - first_)][op.value()];
  }

  // By the rules of docs/happens_before.md. A lane passes the step boundary as
  // a whole.
  bool FindFree(uint64_t step) {
    std::vector<bool> lane_is_behind(plan_.num_compute_lanes);
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      if (IsBehind(i, step - 1)) lane_is_behind[plan_.nodes[i].lane] = true;
    }
    bool any = false;
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const ComputeNode& node = plan_.nodes[i];
      bool behind = lane_is_behind[node.lane];
      for (const Wait& wait : node.waits) {
        const uint64_t distance = static_cast<uint64_t>(wait.distance);
        if (distance >= step) continue;  // satisfied from the start
        behind |= wait.producer.kind == NodeRef::Kind::kLaunch
                      ? !IsComplete(wait.producer.index, step - distance)
                      : IsBehind(plan_.node_of_op[wait.producer.index],
                                 step - distance);
      }
      for (OpId op : node.after) {
        const uint32_t before = plan_.node_of_op[op.value()];
        if (plan_.nodes[before].lane == node.lane) {
          behind |= IsBehind(before, step);
        }
      }
      if (!behind) continue;
      free_[static_cast<size_t>(step - first_)][i] = true;
      if (!MayRun(i, step)) continue;
      Spoiled(node.op, step) = true;
      any = true;
    }
    return any;
  }

  bool HaveSeveralWorkers() const {
    uint32_t lane = Plan::kNone;
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      if (progress_.unguarded[i] == 0) continue;
      if (lane != Plan::kNone && lane != plan_.nodes[i].lane) return true;
      lane = plan_.nodes[i].lane;
    }
    return false;
  }

  void PrepareOrder() {
    without_launches_ = WithoutLaunches(plan_);
    left_ = std::make_unique<HappensBefore>(without_launches_, witness_);
    planned_ = std::make_unique<HappensBefore>(plan_, witness_);
    readers_.resize(plan_.graph->buffers().size());
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      for (const Access& access : plan_.graph->op(plan_.nodes[i].op).accesses) {
        if (!Reads(access.mode)) continue;
        readers_[access.buffer.value()].push_back({i, &access});
      }
    }
    lanes_.resize(plan_.num_comm_lanes);
    for (uint32_t i = 0; i < plan_.launches.size(); ++i) {
      lanes_[plan_.launches[i].lane].push_back(i);
    }
  }

  void SpoilReaders(uint32_t writer, uint64_t step) {
    const Graph& graph = *plan_.graph;
    for (const Access& write : graph.op(plan_.nodes[writer].op).accesses) {
      if (!Writes(write.mode)) continue;
      for (const Reader& reader : readers_[write.buffer.value()]) {
        if (!MayOverlap(graph, write, *reader.access)) continue;
        SpoilReader(reader.node, writer, step);
      }
      if (graph.buffer(write.buffer).ownership != Ownership::kOwned) continue;
      for (BufferId other : SharingMemoryWith(write.buffer)) {
        for (const Reader& reader : readers_[other.value()]) {
          SpoilReader(reader.node, writer, step);
        }
      }
    }
  }

  std::vector<BufferId> SharingMemoryWith(BufferId buffer) const {
    std::vector<BufferId> sharing;
    const auto own = std::find_if(
        plan_.placements.begin(), plan_.placements.end(),
        [&](const Placement& placed) { return placed.buffer == buffer; });
    if (own == plan_.placements.end()) return sharing;
    for (const Placement& other : plan_.placements) {
      if (other.buffer == buffer || other.offset >= own->offset + own->bytes ||
          own->offset >= other.offset + other.bytes) {
        continue;
      }
      sharing.push_back(other.buffer);
    }
    return sharing;
  }

  // What the plan has before the writer: of its step, and of those before it.
  // Later readers depend on it.
  void SpoilReader(uint32_t reader, uint32_t writer, uint64_t step) {
    const uint32_t from = PositionOf(reader);
    const uint32_t to = PositionOf(writer);
    for (uint64_t of = from < to ? step : step - 1; of >= first_; --of) {
      if (!MayRun(reader, of)) continue;
      const int distance = static_cast<int>(step - of);
      if (distance <= 1 && left_->Ordered(from, to, distance)) return;
      if (IsKnownComplete(from, of)) return;
      Spoiled(plan_.nodes[reader].op, of) = true;
    }
  }

  uint32_t PositionOf(uint32_t node) const {
    return witness_.of_op[plan_.nodes[node].op.value()];
  }

  // Of a lane, the last launch that is complete knows what all before it do.
  bool IsKnownComplete(uint32_t position, uint64_t step) {
    for (const std::vector<uint32_t>& lane : lanes_) {
      for (int distance : {1, 0}) {
        const uint64_t launched = step + static_cast<uint64_t>(distance);
        const auto end = std::partition_point(
            lane.begin(), lane.end(),
            [&](uint32_t i) { return IsComplete(i, launched); });
        if (end == lane.begin()) continue;
        const uint32_t launch = witness_.of_launch[*std::prev(end)];
        if (planned_->Ordered(position, launch, distance)) return true;
      }
    }
    return false;
  }

  struct Reader {
    uint32_t node;
    const Access* access;
  };

  const Plan& plan_;
  const ProgressAtFailure& progress_;
  const uint64_t first_;
  const Witness witness_;
  // By step from the first, then node: whether the plan has it behind an
  // incomplete launch.
  std::vector<std::vector<bool>> free_;
  std::vector<std::vector<bool>> spoiled_;  // by step from the first, then op

  Plan without_launches_;
  std::unique_ptr<HappensBefore> left_;     // by streams and compute ops alone
  std::unique_ptr<HappensBefore> planned_;  // by all there is
  std::vector<std::vector<Reader>> readers_;  // by BufferId
  std::vector<std::vector<uint32_t>> lanes_;  // launches, in order
};

}  // namespace

std::vector<std::vector<bool>> SpoiledByFreedWork(
    const Plan& plan, const ProgressAtFailure& progress, uint64_t first) {
  return FreedWork(plan, progress, first).Run();
}

}  // namespace commsched

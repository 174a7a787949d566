#include "plan/verify/happens_before.h"

#include <algorithm>

namespace commsched {

HappensBefore::HappensBefore(const Plan& plan, const Witness& witness)
    : plan_(plan),
      witness_(witness),
      num_compute_(plan.num_compute_lanes),
      num_lanes_(plan.num_compute_lanes + plan.num_comm_lanes) {
  const uint32_t n = static_cast<uint32_t>(witness.nodes.size());
  PlaceInLanes();
  complete_.assign(size_t{2} * n * num_lanes_, 0);
  start_.assign(size_t{n} * num_lanes_, 0);
  lane_end_.assign(size_t{2} * num_lanes_ * num_lanes_, 0);
  seen_.assign(size_t{2} * n, 0);
  lane_seen_.assign(num_compute_, 0);
  for (uint32_t step = 0; step < 2; ++step) {
    for (uint32_t p = 0; p < n; ++p) Visit(step, p);
  }
}

void HappensBefore::PlaceInLanes() {
  lanes_.resize(num_lanes_);
  nodes_.resize(witness_.nodes.size());
  for (uint32_t p = 0; p < nodes_.size(); ++p) {
    const NodeRef ref = witness_.nodes[p];
    Node& node = nodes_[p];
    if (ref.kind == NodeRef::Kind::kOp) {
      node.lane = plan_.nodes[plan_.node_of_op[ref.index]].lane;
    } else {
      node.lane = num_compute_ + plan_.launches[ref.index].lane;
      if (!lanes_[node.lane].empty()) node.previous = lanes_[node.lane].back();
    }
    node.position = static_cast<uint32_t>(lanes_[node.lane].size());
    lanes_[node.lane].push_back(p);
  }
  for (const std::vector<uint32_t>& lane : lanes_) {
    lane_size_.push_back(static_cast<uint32_t>(lane.size()));
  }
}

absl::Span<const Wait> HappensBefore::WaitsOf(uint32_t p) const {
  const NodeRef ref = witness_.nodes[p];
  return ref.kind == NodeRef::Kind::kOp
             ? plan_.nodes[plan_.node_of_op[ref.index]].waits
             : plan_.launches[ref.index].waits;
}

void HappensBefore::Join(const uint32_t* known) {
  const uint32_t num_lanes = num_lanes_;
  uint32_t* clock = clock_;
  for (uint32_t lane = 0; lane < num_lanes; ++lane) {
    clock[lane] = std::max(clock[lane], known[lane]);
  }
}

template <typename Visitor>
void HappensBefore::ForEachBefore(uint32_t step, uint32_t p,
                                  Visitor visit) const {
  for (const Wait& wait : WaitsOf(p)) {
    const uint32_t distance = static_cast<uint32_t>(wait.distance);
    if (distance > step) continue;
    visit(step - distance, witness_.PositionOf(wait.producer));
  }
  if (!IsCompute(p)) return;
  const ComputeNode& node =
      plan_.nodes[plan_.node_of_op[witness_.nodes[p].index]];
  for (OpId op : node.after) {
    const uint32_t from = witness_.of_op[op.value()];
    if (nodes_[from].lane == nodes_[p].lane) visit(step, from);
  }
}

void HappensBefore::Visit(uint32_t step, uint32_t p) {
  clock_ = &complete_[(step * nodes_.size() + p) * num_lanes_];
  const uint32_t lane = nodes_[p].lane;
  if (IsCompute(p) && step == 1) {
    // The lane enters a step when all it did in the step before is enqueued.
    Join(&lane_end_[size_t{lane} * num_lanes_]);
    clock_[lane] = std::max(clock_[lane], lane_size_[lane]);
  }
  ForEachBefore(step, p, [&](uint32_t from_step, uint32_t from) {
    Join(Complete(from_step, from));
  });
  if (step == 1) {
    std::copy(clock_, clock_ + num_lanes_, &start_[size_t{p} * num_lanes_]);
  }
  uint32_t* lane_end =
      &lane_end_[(size_t{step} * num_lanes_ + lane) * num_lanes_];
  const uint32_t own = CountOf(step, p);
  if (!IsCompute(p)) {
    // Completion in lane order: all that was complete before is complete now.
    Join(&lane_end_[size_t{lane} * num_lanes_]);
    Join(lane_end);
    clock_[lane] = own;
  } else if (clock_[lane] + 1 == own) {
    clock_[lane] = own;
  }
  for (uint32_t other = 0; other < num_lanes_; ++other) {
    lane_end[other] = std::max(lane_end[other], clock_[other]);
  }
}

uint32_t HappensBefore::LaunchesKnown(uint32_t to, uint32_t lane) const {
  return Start(to)[num_compute_ + lane];
}

// Depth first over completions, from those before the start of (1, to).
bool HappensBefore::Search(uint32_t from_step, uint32_t from, uint32_t to) {
  const uint32_t n = static_cast<uint32_t>(nodes_.size());
  const uint32_t goal = from_step * n + from;
  ++search_;
  stack_.clear();
  bool found = false;
  auto push = [&](uint32_t step, uint32_t p) {
    const uint32_t id = step * n + p;
    if (id == goal) found = true;
    if (id <= goal || seen_[id] == search_) return;
    seen_[id] = search_;
    stack_.push_back(id);
  };
  auto push_before_start = [&](uint32_t step, uint32_t p) {
    ForEachBefore(step, p, push);
    if (step == 0 || from_step == 1 || !IsCompute(p)) return;
    const uint32_t lane = nodes_[p].lane;
    if (lane_seen_[lane] == search_) return;
    lane_seen_[lane] = search_;
    for (uint32_t before : lanes_[lane]) push(0, before);
  };
  push_before_start(1, to);
  while (!found && !stack_.empty()) {
    const uint32_t id = stack_.back();
    stack_.pop_back();
    const uint32_t step = id / n;
    const uint32_t p = id % n;
    if (Complete(step, p)[nodes_[from].lane] >= CountOf(from_step, from)) {
      return true;
    }
    push_before_start(step, p);
    if (IsCompute(p)) continue;
    if (nodes_[p].previous != Plan::kNone) {
      push(step, nodes_[p].previous);
    } else if (step == 1) {
      push(0, lanes_[nodes_[p].lane].back());
    }
  }
  return found;
}

}  // namespace commsched

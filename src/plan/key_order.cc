#include "plan/predict/list_schedule.h"

namespace commsched {
namespace {

// Every lane runs as far as it can before the next transfer goes.
class KeyOrder {
 public:
  explicit KeyOrder(const JobModel &model)
      : model_(model),
        lanes_(model.lanes.size()),
        done_(model.num_nodes(), false) {
    sequence_.reserve(model.num_nodes());
  }

  absl::StatusOr<std::vector<uint32_t>> Run() {
    for (uint32_t node = model_.num_compute(); node < model_.num_nodes();
         ++node) {
      RunLanes();
      if (NextUnmet(node, 0) != model_.In(node).size()) break;
      Visit(node);
    }
    RunLanes();
    if (sequence_.size() == model_.num_nodes()) return std::move(sequence_);
    return absl::InternalError(
        "prioritize: the launches cannot go in key order");
  }

 private:
  struct Lane {
    uint32_t next = 0;  // of the lane's ops
    uint32_t met = 0;   // edges into that one, from the first
  };

  void RunLanes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t l = 0; l < lanes_.size(); ++l) {
        while (Advance(l)) moved = true;
      }
    }
  }

  // Runs the next op of a lane if it can.
  bool Advance(uint32_t l) {
    Lane &lane = lanes_[l];
    const std::vector<uint32_t> &ops = model_.lanes[l];
    if (lane.next == ops.size()) return false;
    const uint32_t node = ops[lane.next];
    lane.met = NextUnmet(node, lane.met);
    if (lane.met != model_.In(node).size()) return false;
    ++lane.next;
    lane.met = 0;
    Visit(node);
    return true;
  }

  // The first edge into `node`, from the `met`-th on, that holds it up.
  uint32_t NextUnmet(uint32_t node, uint32_t met) const {
    const absl::Span<const JobModel::Edge> in = model_.In(node);
    while (met < in.size() && (in[met].distance != 0 || done_[in[met].node])) {
      ++met;
    }
    return met;
  }

  void Visit(uint32_t node) {
    done_[node] = true;
    sequence_.push_back(node);
  }

  const JobModel &model_;
  std::vector<Lane> lanes_;
  std::vector<bool> done_;  // by node
  std::vector<uint32_t> sequence_;
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> SequenceInKeyOrder(
    const JobModel &model) {
  return KeyOrder(model).Run();
}

}  // namespace commsched

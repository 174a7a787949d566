#include <algorithm>
#include <limits>
#include <utility>

#include "plan/predict/link_state.h"
#include "plan/predict/list_schedule.h"

namespace commsched {
namespace {

constexpr size_t kMaxSteps = 12;

class Player {
 public:
  Player(const JobModel& model, const std::vector<uint32_t>& sequence,
         LinkUse use)
      : model_(model),
        sequence_(sequence),
        use_(use),
        lane_free_(model.lanes.size(), 0),
        links_(model.num_roles, LinkState(model.max_launches, model.max_bytes)),
        ready_(model.num_nodes(), 0),
        start_(model.num_nodes(), 0),
        end_(model.num_nodes(), 0),
        end_before_(model.num_nodes(), 0) {}

  Played Run() {
    std::vector<int64_t> marks = {0};
    while (marks.size() <= kMaxSteps && !Settled(marks)) {
      std::swap(end_, end_before_);
      for (uint32_t node : sequence_) Visit(node);
      marks.push_back(Mark());
    }
    Played result;
    const size_t last = marks.size() - 1;
    const size_t from = Settled(marks) ? last - 1 : last / 2;
    result.step_ns =
        (marks[last] - marks[from]) / static_cast<int64_t>(last - from);
    int64_t origin = std::numeric_limits<int64_t>::max();
    for (uint32_t i = 0; i < model_.num_compute(); ++i) {
      origin = std::min(origin, start_[i]);
    }
    if (model_.num_compute() == 0) origin = 0;
    for (std::vector<int64_t>* times : {&ready_, &start_, &end_}) {
      for (int64_t& time : *times) time -= origin;
    }
    result.ready = std::move(ready_);
    result.start = std::move(start_);
    result.end = std::move(end_);
    return result;
  }

 private:
  static bool Settled(const std::vector<int64_t>& marks) {
    const size_t n = marks.size();
    return n >= 4 && marks[n - 1] - marks[n - 2] == marks[n - 2] - marks[n - 3];
  }

  // The end of all that has been played.
  int64_t Mark() const {
    return end_.empty() ? 0 : *std::max_element(end_.begin(), end_.end());
  }

  void Visit(uint32_t node) {
    int64_t ready = 0;
    for (const JobModel::Edge& edge : model_.In(node)) {
      ready = std::max(
          ready, edge.distance == 0 ? end_[edge.node] : end_before_[edge.node]);
    }
    ready_[node] = ready;
    if (model_.IsTransfer(node)) {
      Transfer(node, ready);
      return;
    }
    const JobModel::Compute& op = model_.compute[node];
    int64_t& free = lane_free_[op.lane];
    start_[node] = std::max(ready, free);
    end_[node] = free = start_[node] + op.cpu_ns;
  }

  void Transfer(uint32_t node, int64_t ready) {
    const JobModel::Transfer& transfer = model_.TransferOf(node);
    start_[node] = ready;
    switch (use_) {
      case LinkUse::kFree:
        end_[node] = ready;
        return;
      case LinkUse::kUnlimited:
        end_[node] = ready + transfer.overhead_ns +
                     std::max(transfer.link_ns, transfer.cpu_ns);
        return;
      case LinkUse::kShared:
        break;
    }
    int64_t issue = ready;
    for (const JobModel::Side& side : model_.SidesOf(transfer)) {
      LinkState& link = links_[side.role];
      issue = std::max({issue, link.issuer_free(), link.RoomForLaunch()});
    }
    end_[node] = IssueTransfer(transfer, issue, &links_, model_);
    start_[node] = issue;
  }

  const JobModel& model_;
  const std::vector<uint32_t>& sequence_;
  const LinkUse use_;
  std::vector<int64_t> lane_free_;
  std::vector<LinkState> links_;  // by role
  std::vector<int64_t> ready_;    // by node
  std::vector<int64_t> start_;
  std::vector<int64_t> end_;
  std::vector<int64_t> end_before_;  // in the step before
};

}  // namespace

int64_t IssueTransfer(const JobModel::Transfer& transfer, int64_t issue,
                      std::vector<LinkState>* links, const JobModel& model) {
  int64_t begin = 0;
  for (const JobModel::Side& side : model.SidesOf(transfer)) {
    LinkState& link = (*links)[side.role];
    issue = link.RoomForBytes(issue, transfer.bytes);
    begin = std::max(begin, link.free());
  }
  begin = std::max(begin, issue + transfer.overhead_ns);
  const int64_t off_link = begin + transfer.busy_ns;
  int64_t done = begin + std::max(transfer.link_ns, transfer.cpu_ns);
  for (const JobModel::Side& side : model.SidesOf(transfer)) {
    done = std::max(done, (*links)[side.role].last_done());
  }
  for (const JobModel::Side& side : model.SidesOf(transfer)) {
    (*links)[side.role].Issue(issue + transfer.overhead_ns, off_link, done,
                              transfer.bytes);
  }
  return done;
}

Played PlaySequence(const JobModel& model,
                    const std::vector<uint32_t>& sequence, LinkUse use) {
  return Player(model, sequence, use).Run();
}

}  // namespace commsched

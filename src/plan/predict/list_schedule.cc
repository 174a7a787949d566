#include "plan/predict/list_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "plan/predict/link_state.h"

namespace commsched {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

template <typename T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<T>>;

// Nothing here asks for times to come in order, but for the choice among
// transfers: a lane's ops start as soon as what they need is scheduled, in host
// order, so that whenever a transfer is chosen all compute that ends before it
// is known.
class Scheduler {
 public:
  Scheduler(const JobModel& model, const OutEdges& out,
            const std::vector<int64_t>& urgency, uint32_t steps)
      : model_(model),
        out_(out),
        urgency_(urgency),
        steps_(steps),
        n_(model.num_nodes()),
        lanes_(model.lanes.size()),
        links_(model.num_roles,
               LinkState(model.max_launches, model.max_bytes)) {
    MakeClasses();
    CountDependencies();
    sequence_.reserve(n_);
    issued_.assign(model.transfers.size(), false);
    SortNeeds();
    OpenStep();
  }

  absl::StatusOr<std::vector<uint32_t>> Run() {
    while (true) {
      AdvanceLanes();
      if (step_ == steps_ && LanesDone()) return std::move(sequence_);
      if (Decide()) continue;
      return absl::InternalError(
          "prioritize: the launches cannot go in key order");
    }
  }

 private:
  struct Lane {
    uint32_t step = 0;
    uint32_t next = 0;  // of the lane's ops
    int64_t free = 0;
  };

  // Transfers of the same roles compete for the same links.
  struct Class {
    std::vector<uint32_t> roles;
    MinHeap<std::pair<int64_t, uint32_t>> coming;  // by time, transfer
    MinHeap<std::pair<int64_t, uint32_t>> there;   // by urgency, transfer
  };

  uint32_t& Left(uint32_t step, uint32_t node) {
    return left_[size_t{step} * n_ + node];
  }
  int64_t& Ready(uint32_t step, uint32_t node) {
    return ready_[size_t{step} * n_ + node];
  }
  uint32_t NodeOf(uint32_t transfer) const {
    return model_.num_compute() + transfer;
  }

  void MakeClasses() {
    std::map<std::vector<uint32_t>, uint32_t> known;
    std::vector<uint32_t> roles;
    class_of_.reserve(model_.transfers.size());
    for (const JobModel::Transfer& transfer : model_.transfers) {
      roles.clear();
      for (const JobModel::Side& side : model_.SidesOf(transfer)) {
        roles.push_back(side.role);
      }
      const auto [at, is_new] =
          known.try_emplace(roles, static_cast<uint32_t>(classes_.size()));
      if (is_new) {
        classes_.emplace_back();
        classes_.back().roles = roles;
      }
      class_of_.push_back(at->second);
    }
  }

  void CountDependencies() {
    left_.assign(size_t{steps_} * n_, 0);
    ready_.assign(size_t{steps_} * n_, 0);
    for (uint32_t node = 0; node < n_; ++node) {
      for (const JobModel::Edge& edge : model_.In(node)) {
        for (uint32_t step = edge.distance; step < steps_; ++step) {
          ++Left(step, node);
        }
      }
    }
  }

  void SortNeeds() {
    needs_.resize(model_.num_roles);
    next_need_.resize(model_.num_roles);
    for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
      for (const JobModel::Side& side : model_.SidesOf(model_.transfers[t])) {
        if (side.first_need == PlannedOrder::kNone) continue;
        needs_[side.role].push_back({side.first_need, t});
      }
    }
    for (auto& needs : needs_) std::sort(needs.begin(), needs.end());
  }

  // Transfers of step_ that are ready already; of an empty step there are none.
  void OpenStep() {
    std::fill(issued_.begin(), issued_.end(), false);
    std::fill(next_need_.begin(), next_need_.end(), 0);
    num_issued_ = 0;
    if (model_.transfers.empty()) step_ = steps_;
    for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
      if (step_ < steps_ && Left(step_, NodeOf(t)) == 0) Offer(t);
    }
  }

  void Offer(uint32_t transfer) {
    classes_[class_of_[transfer]].coming.push(
        {Ready(step_, NodeOf(transfer)), transfer});
  }

  void Start(uint32_t step, uint32_t node, int64_t end) {
    if (step + 1 == steps_) sequence_.push_back(node);
    for (const JobModel::Edge& edge : out_.Of(node)) {
      const uint32_t to_step = step + edge.distance;
      if (to_step >= steps_) continue;
      int64_t& ready = Ready(to_step, edge.node);
      ready = std::max(ready, end);
      if (--Left(to_step, edge.node) != 0) continue;
      if (model_.IsTransfer(edge.node) && to_step == step_) {
        Offer(edge.node - model_.num_compute());
      }
    }
  }

  bool LanesDone() const {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [&](const Lane& lane) { return lane.step == steps_; });
  }

  void AdvanceLanes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t l = 0; l < lanes_.size(); ++l) {
        while (Advance(l)) moved = true;
      }
    }
  }

  // Runs the next op of a lane if its start is known.
  bool Advance(uint32_t l) {
    Lane& lane = lanes_[l];
    const std::vector<uint32_t>& ops = model_.lanes[l];
    if (lane.step == steps_) return false;
    if (lane.next == ops.size()) {
      ++lane.step;
      lane.next = 0;
      return true;
    }
    const uint32_t head = ops[lane.next];
    if (Left(lane.step, head) != 0) return false;
    ++lane.next;
    lane.free = std::max(lane.free, Ready(lane.step, head)) +
                model_.compute[head].cpu_ns;
    Start(lane.step, head, lane.free);
    return true;
  }

  // When all links of a class take the next transfer.
  int64_t LinksOf(const Class& each) const {
    int64_t at = 0;
    for (uint32_t role : each.roles) {
      const LinkState& link = links_[role];
      at = std::max({at, link.issuer_free(), link.free() - model_.launch_ns,
                     link.RoomForLaunch()});
    }
    return at;
  }

  int64_t DecisionOf(const Class& each) const {
    if (!each.there.empty()) return LinksOf(each);
    if (each.coming.empty()) return kNever;
    return std::max(LinksOf(each), each.coming.top().first);
  }

  int64_t NextDecision() const {
    int64_t at = kNever;
    for (const Class& each : classes_) at = std::min(at, DecisionOf(each));
    return at;
  }

  // Issues a transfer; false if there is none to issue.
  bool Decide() {
    if (step_ == steps_) return false;
    std::vector<uint32_t> held;
    uint32_t chosen = Plan::kNone;
    int64_t at = 0;
    while (chosen == Plan::kNone) {
      at = NextDecision();
      if (at == kNever) break;
      chosen = TakeMostUrgent(at);
      if (IsAllowed(chosen)) continue;
      held.push_back(chosen);
      chosen = Plan::kNone;
    }
    for (uint32_t t : held) {
      classes_[class_of_[t]].there.push({urgency_[t], t});
    }
    if (chosen == Plan::kNone) return false;
    Issue(chosen, at);
    return true;
  }

  uint32_t TakeMostUrgent(int64_t at) {
    Class* best = nullptr;
    for (Class& each : classes_) {
      if (DecisionOf(each) > at) continue;
      while (!each.coming.empty() && each.coming.top().first <= at) {
        const uint32_t t = each.coming.top().second;
        each.coming.pop();
        each.there.push({urgency_[t], t});
      }
      if (best == nullptr || each.there.top() < best->there.top()) {
        best = &each;
      }
    }
    const uint32_t t = best->there.top().second;
    best->there.pop();
    return t;
  }

  // Whether no op of the step that is declared before the last producer of
  // `transfer` needs a transfer that has not been issued.
  bool IsAllowed(uint32_t transfer) {
    for (const JobModel::Side& side :
         model_.SidesOf(model_.transfers[transfer])) {
      const auto& needs = needs_[side.role];
      size_t& next = next_need_[side.role];
      while (next < needs.size() && issued_[needs[next].second]) ++next;
      if (next < needs.size() && needs[next].first < side.ready) return false;
    }
    return true;
  }

  void Issue(uint32_t t, int64_t at) {
    const JobModel::Transfer& transfer = model_.transfers[t];
    const int64_t done = IssueTransfer(transfer, at, &links_, model_);
    issued_[t] = true;
    ++num_issued_;
    Start(step_, NodeOf(t), done);
    if (num_issued_ < model_.transfers.size()) return;
    ++step_;
    OpenStep();
  }

  const JobModel& model_;
  const OutEdges& out_;
  const std::vector<int64_t>& urgency_;
  const uint32_t steps_;
  const uint32_t n_;
  std::vector<Lane> lanes_;
  std::vector<LinkState> links_;  // by role
  std::vector<Class> classes_;
  std::vector<uint32_t> class_of_;  // by transfer
  std::vector<uint32_t> left_;      // by step, node: edges not met
  std::vector<int64_t> ready_;      // by step, node: when the others were

  uint32_t step_ = 0;  // whose transfers are being issued
  uint32_t num_issued_ = 0;
  std::vector<bool> issued_;  // by transfer, in step_
  // By role: transfers by first need, and the first that is not issued.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> needs_;
  std::vector<size_t> next_need_;
  std::vector<uint32_t> sequence_;
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ScheduleList(
    const JobModel& model, const OutEdges& out,
    const std::vector<int64_t>& urgency, uint32_t steps) {
  return Scheduler(model, out, urgency, steps).Run();
}

}  // namespace commsched

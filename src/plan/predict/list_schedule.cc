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
// Fillers looked at for one gap.
constexpr size_t kMaxFillersTried = 16;

template <typename T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<T>>;

// Nothing here asks for times to come in order, but for the choice among
// transfers: a lane's ops start as soon as what they need is scheduled, in host
// order, so that whenever a transfer is chosen all compute that ends before it
// is known.
class Scheduler {
 public:
  Scheduler(const JobModel& model, const OutEdges& out,
            const ListScheduleSpec& spec)
      : model_(model),
        out_(out),
        spec_(spec),
        n_(model.num_nodes()),
        lanes_(model.lanes.size()),
        links_(model.num_roles,
               LinkState(model.max_launches, model.max_bytes)) {
    MakeClasses();
    CountDependencies();
    schedule_.sequence.reserve(n_);
    schedule_.start.assign(n_, 0);
    issued_.assign(model.transfers.size(), false);
    SortNeeds();
    OpenStep();
  }

  absl::StatusOr<ListSchedule> Run() {
    while (true) {
      AdvanceLanes();
      if (step_ == spec_.steps && LanesDone()) return std::move(schedule_);
      if (spec_.delay_fillers && RunFillerWhileWaiting(NextDecision())) {
        continue;
      }
      if (Decide()) continue;
      if (RunFillerWhileWaiting(kNever)) continue;
      return absl::InternalError(
          "prioritize: the launches cannot go in key order");
    }
  }

 private:
  struct Lane {
    uint32_t step = 0;
    uint32_t next = 0;  // of the lane's ops
    int64_t free = 0;
    std::vector<uint32_t> fillers;  // put off, in host order
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
    left_.assign(size_t{spec_.steps} * n_, 0);
    ready_.assign(size_t{spec_.steps} * n_, 0);
    for (uint32_t node = 0; node < n_; ++node) {
      for (const JobModel::Edge& edge : model_.In(node)) {
        for (uint32_t step = edge.distance; step < spec_.steps; ++step) {
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
    if (model_.transfers.empty()) step_ = spec_.steps;
    for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
      if (step_ < spec_.steps && Left(step_, NodeOf(t)) == 0) Offer(t);
    }
  }

  void Offer(uint32_t transfer) {
    classes_[class_of_[transfer]].coming.push(
        {Ready(step_, NodeOf(transfer)), transfer});
  }

  void Start(uint32_t step, uint32_t node, int64_t start, int64_t end) {
    if (step + 1 == spec_.steps) {
      schedule_.sequence.push_back(node);
      schedule_.start[node] = start;
    }
    for (const JobModel::Edge& edge : out_.Of(node)) {
      const uint32_t to_step = step + edge.distance;
      if (to_step >= spec_.steps) continue;
      int64_t& ready = Ready(to_step, edge.node);
      ready = std::max(ready, end);
      if (--Left(to_step, edge.node) != 0) continue;
      if (model_.IsTransfer(edge.node) && to_step == step_) {
        Offer(edge.node - model_.num_compute());
      }
    }
  }

  bool LanesDone() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return lane.step == spec_.steps;
    });
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
    if (lane.step == spec_.steps) return false;
    while (spec_.delay_fillers && lane.next < ops.size() &&
           model_.compute[ops[lane.next]].filler) {
      lane.fillers.push_back(ops[lane.next++]);
    }
    if (lane.next == ops.size()) {
      if (!lane.fillers.empty()) return RunFiller(l, kNever);
      ++lane.step;
      lane.next = 0;
      return true;
    }
    const uint32_t head = ops[lane.next];
    if (Left(lane.step, head) != 0) return false;
    const int64_t start = std::max(lane.free, Ready(lane.step, head));
    if (start > lane.free && RunFiller(l, start)) return true;
    ++lane.next;
    Run(l, head, start);
    return true;
  }

  void Run(uint32_t l, uint32_t node, int64_t start) {
    Lane& lane = lanes_[l];
    lane.free = start + model_.compute[node].cpu_ns;
    Start(lane.step, node, start, lane.free);
  }

  // The first filler of the lane that would be half done by `limit`, as an
  // index; the number of fillers if there is none.
  size_t FindFiller(uint32_t l, int64_t limit) {
    const Lane& lane = lanes_[l];
    for (size_t i = 0; i < std::min(lane.fillers.size(), kMaxFillersTried);
         ++i) {
      const uint32_t node = lane.fillers[i];
      if (Left(lane.step, node) != 0) continue;
      const int64_t start = std::max(lane.free, Ready(lane.step, node));
      if (start + model_.compute[node].cpu_ns / 2 <= limit) return i;
    }
    return lane.fillers.size();
  }

  bool RunFiller(uint32_t l, int64_t limit) {
    Lane& lane = lanes_[l];
    const size_t i = FindFiller(l, limit);
    if (i == lane.fillers.size()) return false;
    const uint32_t node = lane.fillers[i];
    lane.fillers.erase(lane.fillers.begin() + static_cast<ptrdiff_t>(i));
    Run(l, node, std::max(lane.free, Ready(lane.step, node)));
    return true;
  }

  // Lanes whose next op waits for a transfer that has not been issued do so
  // until `until` at least.
  bool RunFillerWhileWaiting(int64_t until) {
    for (uint32_t l = 0; l < lanes_.size(); ++l) {
      if (!lanes_[l].fillers.empty() && RunFiller(l, until)) return true;
    }
    return false;
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
    if (step_ == spec_.steps) return false;
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
      classes_[class_of_[t]].there.push({spec_.urgency[t], t});
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
        each.there.push({spec_.urgency[t], t});
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
    const Issued issued = IssueTransfer(transfer, at, &links_, model_);
    issued_[t] = true;
    ++num_issued_;
    Start(step_, NodeOf(t), issued.issue, issued.done);
    if (num_issued_ < model_.transfers.size()) return;
    ++step_;
    OpenStep();
  }

  const JobModel& model_;
  const OutEdges& out_;
  const ListScheduleSpec& spec_;
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
  ListSchedule schedule_;
};

}  // namespace

absl::StatusOr<ListSchedule> ScheduleList(const JobModel& model,
                                          const OutEdges& out,
                                          const ListScheduleSpec& spec) {
  return Scheduler(model, out, spec).Run();
}

}  // namespace commsched

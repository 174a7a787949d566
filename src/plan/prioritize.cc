#include "plan/prioritize.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/policy_order.h"
#include "plan/predict/list_schedule.h"

namespace commsched {
namespace {

using Choice = PriorityReport::Choice;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Two suffice for what is carried over the step boundary; one for good measure.
constexpr uint32_t kSteps = 3;

class Prioritizer {
 public:
  Prioritizer(absl::Span<const RoleDraft> roles, const PlanOptions& options)
      : roles_(roles), options_(options), model_(ModelJob(roles, options)) {}

  absl::StatusOr<PriorityReport> Run() {
    if (model_.transfers.size() < 2) return report_;
    ASSIGN_OR_RETURN(const std::vector<uint32_t> ready,
                     SequenceInKeyOrder(model_));
    report_.choice = Choice::kReady;
    report_.as_ready_ns = report_.chosen_ns = StepNs(model_, ready);
    FindBound(ready);
    const bool pointless =
        options_.priority == Priority::kOff ||
        (options_.priority == Priority::kAuto && !Gains(report_.bound_ns));
    if (pointless && options_.policy == nullptr) return report_;
    out_ = OutEdgesOf(model_);
    FindNeeds(ready);
    if (options_.policy != nullptr) {
      ASSIGN_OR_RETURN(const bool decided, AskPolicy());
      if (decided || pointless) return report_;
    }
    RETURN_IF_ERROR(GoByNeed());
    return report_;
  }

 private:
  static int64_t StepNs(const JobModel& model,
                        const std::vector<uint32_t>& sequence) {
    return PlaySequence(model, sequence, LinkUse::kShared).step_ns;
  }

  // The cheap bound first; most often it is near enough.
  void FindBound(const std::vector<uint32_t>& sequence) {
    report_.bound_ns = BusiestNs();
    if (!Gains(report_.bound_ns)) return;
    report_.bound_ns =
        std::max(report_.bound_ns,
                 PlaySequence(model_, sequence, LinkUse::kUnlimited).step_ns);
  }

  // What the busiest lane or link has to do in a step, in whatever order.
  int64_t BusiestNs() const {
    std::vector<int64_t> lanes(model_.lanes.size(), 0);
    std::vector<int64_t> links(model_.num_roles, 0);
    for (const JobModel::Compute& op : model_.compute) {
      lanes[op.lane] += op.cpu_ns;
    }
    for (const JobModel::Transfer& transfer : model_.transfers) {
      for (const JobModel::Side& side : model_.SidesOf(transfer)) {
        links[side.role] += transfer.busy_ns;
      }
    }
    int64_t busiest = 0;
    for (int64_t ns : lanes) busiest = std::max(busiest, ns);
    for (int64_t ns : links) busiest = std::max(busiest, ns);
    return busiest;
  }

  bool Gains(int64_t step_ns) const {
    const double as_ready = static_cast<double>(report_.as_ready_ns);
    return as_ready - static_cast<double>(step_ns) > kLeastGain * as_ready;
  }

  absl::Status GoByNeed() {
    ASSIGN_OR_RETURN(const std::vector<uint32_t> sequence,
                     ScheduleList(model_, out_, Urgency(), kSteps));
    const int64_t step_ns = StepNs(model_, sequence);
    report_.by_need_tried = true;
    report_.by_need_ns = step_ns;
    if (options_.priority == Priority::kAuto && !Gains(step_ns)) {
      return absl::OkStatus();
    }
    report_.choice = Choice::kNeed;
    report_.chosen_ns = step_ns;
    std::vector<uint32_t> order;
    for (uint32_t node : sequence) {
      if (model_.IsTransfer(node)) order.push_back(node - model_.num_compute());
    }
    Reorder(order);
    return absl::OkStatus();
  }

  // Fills earliest_ and need_, by transfer: from the start of the step, if
  // communication took no time.
  void FindNeeds(const std::vector<uint32_t>& sequence) {
    Played free = PlaySequence(model_, sequence, LinkUse::kFree);
    earliest_ = std::move(free.start);
    need_.assign(model_.num_nodes(), kNever);
    for (uint32_t i = 0; i < model_.num_compute(); ++i) need_[i] = earliest_[i];
    // Chains of transfers within a step are followed backwards; once more for
    // those that cross the boundary.
    for (int round = 0; round < 2; ++round) {
      for (auto node = sequence.rbegin(); node != sequence.rend(); ++node) {
        if (model_.IsTransfer(*node)) FindNeed(*node, free.step_ns);
      }
    }
    ShareNeeds();
  }

  // Consumers depend on the last piece of a split collective: the others are
  // needed when it is.
  void ShareNeeds() {
    const uint32_t first = model_.num_compute();
    for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
      const Piece& piece =
          LaunchOf(model_.SidesOf(model_.transfers[t])[0]).piece;
      need_[first + t] = need_[first + t + (piece.of - 1 - piece.index)];
    }
  }

  void FindNeed(uint32_t node, int64_t step_ns) {
    for (const JobModel::Edge& edge : out_.Of(node)) {
      int64_t need = need_[edge.node];
      if (need == kNever || edge.node == node) continue;
      if (model_.IsTransfer(edge.node)) {
        const JobModel::Transfer& next = model_.TransferOf(edge.node);
        need -= next.overhead_ns + next.link_ns;
      }
      need_[node] =
          std::min(need_[node], need + int64_t{edge.distance} * step_ns);
    }
  }

  std::vector<int64_t> Urgency() const {
    const uint32_t n = static_cast<uint32_t>(model_.transfers.size());
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    auto key = [&](uint32_t t) {
      return std::make_tuple(need_[model_.num_compute() + t],
                             -int64_t{model_.transfers[t].priority}, t);
    };
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    std::vector<int64_t> urgency(n);
    for (uint32_t i = 0; i < n; ++i) urgency[order[i]] = i;
    return urgency;
  }

  // True: the policy has given an order.
  absl::StatusOr<bool> AskPolicy() {
    ASSIGN_OR_RETURN(
        const std::vector<uint32_t> order,
        OrderOfPolicy(*options_.policy, roles_, model_, earliest_, need_));
    if (order.empty()) return false;
    Reorder(order);
    report_.choice = Choice::kPolicy;
    const JobModel model = ModelJob(roles_, options_);
    ASSIGN_OR_RETURN(const std::vector<uint32_t> sequence,
                     SequenceInKeyOrder(model));
    report_.chosen_ns = StepNs(model, sequence);
    return true;
  }

  // `order`: of transfers. The i-th takes over the key of the i-th there was.
  void Reorder(const std::vector<uint32_t>& order) {
    std::vector<uint64_t> keys;
    for (const JobModel::Transfer& transfer : model_.transfers) {
      keys.push_back(LaunchOf(model_.SidesOf(transfer)[0]).key);
    }
    std::vector<std::vector<Launch>> reordered(roles_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      for (const JobModel::Side& side :
           model_.SidesOf(model_.transfers[order[i]])) {
        reordered[side.role].push_back(std::move(LaunchOf(side)));
        reordered[side.role].back().key = keys[i];
      }
    }
    for (size_t r = 0; r < roles_.size(); ++r) {
      *roles_[r].launches = std::move(reordered[r]);
    }
  }

  Launch& LaunchOf(const JobModel::Side& side) const {
    return (*roles_[side.role].launches)[side.launch];
  }

  const absl::Span<const RoleDraft> roles_;
  const PlanOptions& options_;
  const JobModel model_;
  OutEdges out_;  // of model_, once they are asked for
  PriorityReport report_{.choice = Choice::kNoChoice};
  std::vector<int64_t> earliest_;  // by node
  std::vector<int64_t> need_;      // by node
};

bool RolesSend(absl::Span<const RoleDraft> roles) {
  if (roles.size() == 1) return false;
  return std::any_of(roles.begin(), roles.end(), [](const RoleDraft& role) {
    return std::any_of(role.launches->begin(), role.launches->end(),
                       [](const Launch& launch) {
                         return launch.kind == CollectiveKind::kSend;
                       });
  });
}

}  // namespace

absl::StatusOr<PriorityReport> Prioritize(absl::Span<const RoleDraft> roles,
                                          const PlanOptions& options) {
  if (options.schedule == Schedule::kSerial ||
      (options.priority == Priority::kOff && options.policy == nullptr)) {
    return PriorityReport{};
  }
  if (RolesSend(roles)) return PriorityReport{.choice = Choice::kNoChoice};
  return Prioritizer(roles, options).Run();
}

}  // namespace commsched

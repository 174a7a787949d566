#include "plan/merge_times.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "plan/launch_way.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

// A consumer in the step after: its slack is known from the round before.
constexpr int kRounds = 2;

// Finds by when each node has to end. It goes backwards from what has to start
// when it does: the first op of each lane and the first transfer of each link
// in the next step.
class LatestEnds {
 public:
  struct Ends {
    std::vector<int64_t> need;    // MergeItem::need_ns
    std::vector<int64_t> latest;  // MergeItem::latest_ns
  };

  LatestEnds(const JobModel& model, const std::vector<uint32_t>& sequence,
             const Played& played)
      : model_(model), sequence_(sequence), played_(played) {}

  Ends Run() {
    std::vector<int64_t> slack(model_.num_nodes(), 0);
    for (int round = 0; round < kRounds; ++round) {
      if (round > 0) {
        for (uint32_t i = 0; i < slack.size(); ++i) {
          slack[i] = std::max<int64_t>(0, latest_[i] - played_.end[i]);
        }
      }
      GoBack(slack);
    }
    return {std::move(need_), std::move(latest_)};
  }

 private:
  // When the issuer of a role, and its link, have to be free for what comes
  // next.
  struct Free {
    int64_t issuer_ns = MergeItem::kNever;
    int64_t link_ns = MergeItem::kNever;
  };

  // What has to begin on the link at `begin_ns`, set up before.
  static Free Before(const JobModel::Transfer& transfer, int64_t begin_ns) {
    return {.issuer_ns = begin_ns - transfer.overhead_ns, .link_ns = begin_ns};
  }

  static int64_t LengthNs(const JobModel::Transfer& transfer) {
    return std::max(transfer.link_ns, transfer.cpu_ns);
  }

  void GoBack(const std::vector<int64_t>& slack) {
    need_.assign(model_.num_nodes(), MergeItem::kNever);
    latest_.assign(model_.num_nodes(), MergeItem::kNever);
    StartNextStep(slack);
    for (uint32_t node = 0; node < model_.num_nodes(); ++node) {
      const int64_t start = played_.start[node] + slack[node] + played_.step_ns;
      Relax(node, /*distance=*/1, start);
    }
    for (auto node = sequence_.rbegin(); node != sequence_.rend(); ++node) {
      Relax(*node, /*distance=*/0, LatestStart(*node));
    }
  }

  // What the last op of a lane and the last transfer of a link make room for.
  void StartNextStep(const std::vector<int64_t>& slack) {
    lanes_.assign(model_.lanes.size(), MergeItem::kNever);
    links_.assign(model_.num_roles, Free());
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      if (model_.lanes[lane].empty()) continue;
      const uint32_t first = model_.lanes[lane].front();
      lanes_[lane] = played_.start[first] + slack[first] + played_.step_ns;
    }
    for (uint32_t node = model_.num_nodes(); node-- > model_.num_compute();) {
      const JobModel::Transfer& transfer = model_.TransferOf(node);
      const int64_t end = played_.end[node] + slack[node] + played_.step_ns;
      for (const JobModel::Side& side : model_.SidesOf(transfer)) {
        links_[side.role] = Before(transfer, end - LengthNs(transfer));
      }
    }
  }

  // Also has the lane of `node`, or its links, make room for it.
  int64_t LatestStart(uint32_t node) {
    int64_t& end = latest_[node];
    need_[node] = end;
    if (!model_.IsTransfer(node)) {
      int64_t& next = lanes_[model_.compute[node].lane];
      end = std::min(end, next);
      next = end == MergeItem::kNever ? MergeItem::kNever
                                      : end - model_.compute[node].cpu_ns;
      return next;
    }
    const JobModel::Transfer& transfer = model_.TransferOf(node);
    for (const JobModel::Side& side : model_.SidesOf(transfer)) {
      const Free& next = links_[side.role];
      if (next.link_ns == MergeItem::kNever) continue;
      const int64_t begin =
          std::min(next.issuer_ns, next.link_ns - transfer.busy_ns);
      end = std::min(end, begin + transfer.link_ns);
    }
    if (end == MergeItem::kNever) return MergeItem::kNever;
    const Free free = Before(transfer, end - LengthNs(transfer));
    for (const JobModel::Side& side : model_.SidesOf(transfer)) {
      links_[side.role] = free;
    }
    return free.issuer_ns;
  }

  void Relax(uint32_t node, uint32_t distance, int64_t start) {
    for (const JobModel::Edge& edge : model_.In(node)) {
      if (edge.distance != distance) continue;
      latest_[edge.node] = std::min(latest_[edge.node], start);
    }
  }

  const JobModel& model_;
  const std::vector<uint32_t>& sequence_;
  const Played& played_;
  std::vector<int64_t> need_;    // by node
  std::vector<int64_t> latest_;  // by node
  std::vector<int64_t> lanes_;   // when what comes next has to start
  std::vector<Free> links_;      // by role
};

// What was measured is known, nothing too, and so is what was estimated.
bool IsUnknown(const RoleDraft& draft, OpId op) {
  if (!draft.profile->op_cost_ns.empty()) return false;
  const ComputeSpec& spec = draft.graph->op(op).compute;
  return spec.cost_ns == 0 && spec.flops == 0 && spec.bytes == 0;
}

// The ops of one role whose cost is not known.
class UnknownCounts {
 public:
  explicit UnknownCounts(const RoleDraft& draft) : draft_(draft) {
    // Host order is gone through twice: for this step and the next.
    const PlannedOrder& order = *draft.order;
    const size_t num_host = order.host.size();
    before_.resize(2 * num_host + 1, 0);
    for (size_t i = 0; i < 2 * num_host; ++i) {
      const bool unknown = IsUnknown(draft, order.host[i % num_host]);
      before_[i + 1] = before_[i] + (unknown ? 1 : 0);
    }
    if (before_.back() == 0) return;
    need_.resize(draft.graph->ops().size(), 2 * num_host);
    for (const Dependency& edge : draft.dependencies->edges) {
      const uint32_t at = order.host_position[edge.to.value()];
      if (at == PlannedOrder::kNone) continue;
      size_t& first = need_[edge.from.value()];
      first = std::min(first, at + edge.distance * num_host);
    }
  }

  UnknownOps Of(const JobModel::Side& side) const {
    if (before_.back() == 0) return {};
    size_t first = before_.size() - 1;
    for (OpId op : (*draft_.launches)[side.launch].members) {
      first = std::min(first, need_[op.value()]);
    }
    return {.before_due = before_[side.ready], .before_need = before_[first]};
  }

 private:
  const RoleDraft& draft_;
  std::vector<uint32_t> before_;  // by position in host order
  std::vector<size_t> need_;      // by op: position of the first consumer
};

}  // namespace

absl::StatusOr<MergeTimes> MergeTimes::Create(
    absl::Span<const RoleDraft> drafts, const PlanOptions& options) {
  MergeTimes times(drafts, options);
  ASSIGN_OR_RETURN(const std::vector<uint32_t> sequence,
                   SequenceInKeyOrder(times.model_));
  const Played played = PlaySequence(times.model_, sequence, LinkUse::kShared);
  times.step_ns_ = played.step_ns;
  times.AddItems(drafts, options, played);
  const LatestEnds::Ends ends =
      LatestEnds(times.model_, sequence, played).Run();
  for (uint32_t t = 0; t < times.items_.size(); ++t) {
    times.items_[t].need_ns = ends.need[times.model_.num_compute() + t];
    times.items_[t].latest_ns = ends.latest[times.model_.num_compute() + t];
  }
  if (options.schedule == Schedule::kSerial) {
    times.HideNothing();
  } else {
    times.CountUnknown(drafts);
  }
  return times;
}

MergeTimes::MergeTimes(absl::Span<const RoleDraft> drafts,
                       const PlanOptions& options)
    : model_(ModelJob(drafts, options)) {}

void MergeTimes::AddItems(absl::Span<const RoleDraft> drafts,
                          const PlanOptions& options, const Played& played) {
  std::vector<LaunchWays> ways;
  ways.reserve(drafts.size());
  for (const RoleDraft& draft : drafts) {
    ways.emplace_back(*draft.graph, options, *draft.profile);
    item_of_op_.emplace_back(draft.graph->ops().size(), Plan::kNone);
  }
  items_.reserve(model_.transfers.size());
  for (uint32_t t = 0; t < model_.transfers.size(); ++t) {
    const JobModel::Transfer& transfer = model_.transfers[t];
    MergeItem& item = items_.emplace_back();
    item.ready_ns = played.ready[model_.num_compute() + t];
    item.serial = options.backend.serial_lanes;
    item.cpu_ns = transfer.cpu_ns;
    item.first_side = transfer.first_side;
    item.num_sides = transfer.num_sides;
    for (const JobModel::Side& side : model_.SidesOf(transfer)) {
      const RoleDraft& draft = drafts[side.role];
      const Launch& launch = (*draft.launches)[side.launch];
      item.launch_ns = std::max(item.launch_ns, draft.profile->launch_ns);
      item.latency_ns =
          std::max(item.latency_ns, draft.profile->link_latency_ns);
      item.packed = item.packed || launch.way == Way::kPack;
      for (OpId op : launch.members) {
        item_of_op_[side.role][op.value()] = t;
        item.list_only = item.list_only || ways[side.role].NeedsList(op);
        const CollectiveSpec& spec = draft.graph->op(op).collective;
        item.copy_ns =
            std::max(item.copy_ns, CopyNs(InputBytes(*draft.graph, spec) +
                                              OutputBytes(*draft.graph, spec),
                                          *draft.profile));
      }
    }
    item.latency_ns = std::min(item.latency_ns, transfer.link_ns);
    item.busy_ns = transfer.link_ns - item.latency_ns;
  }
}

// Each op waits for all that is due, so that what is due together may as well
// go together.
void MergeTimes::HideNothing() {
  for (MergeItem& item : items_) {
    item.need_ns = MergeItem::kNever;
    item.latest_ns = MergeItem::kNever;
  }
  unknown_.reserve(model_.sides.size());
  for (const JobModel::Side& side : model_.sides) {
    unknown_.push_back({.before_due = side.ready});
  }
}

void MergeTimes::CountUnknown(absl::Span<const RoleDraft> drafts) {
  std::vector<UnknownCounts> counts;
  counts.reserve(drafts.size());
  for (const RoleDraft& draft : drafts) counts.emplace_back(draft);
  unknown_.reserve(model_.sides.size());
  for (const JobModel::Side& side : model_.sides) {
    unknown_.push_back(counts[side.role].Of(side));
  }
}

}  // namespace commsched

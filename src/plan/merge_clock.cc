#include "plan/merge_clock.h"

#include <algorithm>

#include "plan/predict/cost_model.h"

namespace commsched {

MergeClock::MergeClock(const MergeTimes& times, MergeRule rule,
                       bool takes_lists)
    : times_(times),
      rule_(rule),
      takes_lists_(takes_lists),
      free_(times.model().num_roles),
      open_(times.model().num_roles, Plan::kNone) {}

MergeVerdict MergeClock::Ask(RoleOp op) const {
  const MergeItem& next = times_.Of(op);
  const OpenLaunch& open = launches_[open_[op.role]];
  MergeVerdict verdict;
  if (times_.UnknownOf(*open.first) != times_.UnknownOf(next)) {
    verdict.why = MergeVerdict::Why::kUnknownCost;
    return verdict;
  }
  const Ends apart = EndsOf(open.load, open.before);
  const Ends behind = EndsOf(With({}, next), apart.free);
  const Load load = With(open.load, next);
  const Ends merged = EndsOf(load, open.before);
  const int64_t earlier_ns = behind.done_ns - merged.done_ns;
  const int64_t cpu_ns =
      OverheadNs(open.load) + OverheadNs(With({}, next)) - OverheadNs(load);
  verdict.saved_ns =
      std::max(earlier_ns, cpu_ns + std::min<int64_t>(0, earlier_ns));
  const int64_t link_ns = load.busy_ns + (load.serial ? load.latency_ns : 0);
  verdict.merged_ns = OverheadNs(load) + std::max(link_ns, load.cpu_ns);
  const int64_t late_apart =
      std::max({int64_t{0}, apart.done_ns - open.load.latest_ns,
                behind.done_ns - next.latest_ns});
  const int64_t late = std::max<int64_t>(0, merged.done_ns - load.latest_ns);
  verdict.late_ns = std::max<int64_t>(0, late - late_apart);
  verdict.safe = IsSafe(open, next, verdict);
  const int64_t most =
      rule_ == MergeRule::kNothing ? 0 : std::max<int64_t>(0, verdict.saved_ns);
  if (!IsWorthIt(verdict)) {
    verdict.why = MergeVerdict::Why::kTooLittle;
  } else if (verdict.late_ns > most) {
    verdict.why = MergeVerdict::Why::kCosts;
  }
  return verdict;
}

void MergeClock::Open(RoleOp op) {
  OpenLaunch launch;
  launch.first = &times_.Of(op);
  const uint32_t open = open_[op.role];
  // The other roles of a pipeline tick, which is one transfer.
  if (open != Plan::kNone && launches_[open].first == launch.first) return;
  launch.load = With({}, *launch.first);
  launch.before = {.ready_ns = MergeItem::kNever, .busy_ns = MergeItem::kNever};
  for (const JobModel::Side& side : times_.SidesOf(*launch.first)) {
    Close(side.role);
    const Free& free = free_[side.role];
    launch.before.issuer_ns = std::max(launch.before.issuer_ns, free.issuer_ns);
    launch.before.link_ns = std::max(launch.before.link_ns, free.link_ns);
    launch.before.ready_ns = std::min(launch.before.ready_ns, free.ready_ns);
    launch.before.busy_ns = std::min(launch.before.busy_ns, free.busy_ns);
    open_[side.role] = static_cast<uint32_t>(launches_.size());
  }
  launches_.push_back(launch);
}

void MergeClock::Join(RoleOp op) {
  Load& load = launches_[open_[op.role]].load;
  load = With(load, times_.Of(op));
}

void MergeClock::Close(uint32_t role) {
  if (open_[role] == Plan::kNone) return;
  const OpenLaunch& launch = launches_[open_[role]];
  free_[role] = EndsOf(launch.load, launch.before).free;
}

bool MergeClock::IsSafe(const OpenLaunch& open, const MergeItem& next,
                        const MergeVerdict& verdict) {
  const auto [less_ns, more_ns] =
      std::minmax({open.load.busy_ns, next.busy_ns});
  if (verdict.late_ns > 0 || less_ns > more_ns / kTinyShare) return false;
  const int64_t wait_ns = next.ready_ns - open.load.ready_ns;
  if (kWaitMargin * wait_ns <= verdict.saved_ns) return true;
  // Not of all that is predicted to queue up: a queue may come of compute that
  // is predicted too short.
  return kWaitMargin * (next.ready_ns - open.before.ready_ns) <=
         open.before.busy_ns;
}

bool MergeClock::IsWorthIt(const MergeVerdict& verdict) {
  const int64_t share =
      verdict.safe ? kLeastSavedShareOfTiny : kLeastSavedShare;
  return verdict.saved_ns > 0 && verdict.saved_ns >= verdict.merged_ns / share;
}

MergeClock::Load MergeClock::With(Load load, const MergeItem& item) {
  load.ready_ns = std::max(load.ready_ns, item.ready_ns);
  load.need_ns = std::min(load.need_ns, item.need_ns);
  // The link has to be free for what comes after the last member only.
  load.latest_ns = std::min(load.need_ns, item.latest_ns);
  load.launch_ns = std::max(load.launch_ns, item.launch_ns);
  load.busy_ns += item.busy_ns;
  load.latency_ns = std::max(load.latency_ns, item.latency_ns);
  load.cpu_ns += item.cpu_ns;
  load.copy_ns += item.copy_ns;
  load.serial = load.serial || item.serial;
  load.packed = load.packed || item.packed;
  load.list_only = load.list_only || item.list_only;
  ++load.num_members;
  return load;
}

// That its members may lie side by side, which is known once it is closed,
// would only make it less.
int64_t MergeClock::OverheadNs(const Load& load) const {
  if (load.packed) return load.launch_ns + load.copy_ns;
  if (load.num_members == 1) return load.launch_ns;
  const int64_t list_ns = kMemberOverheadNs * (load.num_members - 1);
  if (load.list_only) return load.launch_ns + list_ns;
  if (!takes_lists_) return load.launch_ns + load.copy_ns;
  return load.launch_ns + std::min(list_ns, load.copy_ns);
}

// As IssueTransfer() has it.
MergeClock::Ends MergeClock::EndsOf(const Load& load, const Free& free) const {
  const int64_t overhead_ns = OverheadNs(load);
  const int64_t link_ns = load.latency_ns + load.busy_ns;
  const int64_t issue_ns = std::max(load.ready_ns, free.issuer_ns);
  const int64_t begin_ns = std::max(issue_ns + overhead_ns, free.link_ns);
  Ends ends;
  ends.free.issuer_ns = issue_ns + overhead_ns;
  ends.free.link_ns = begin_ns + (load.serial ? link_ns : load.busy_ns);
  ends.free.ready_ns = load.ready_ns;
  ends.free.busy_ns = load.busy_ns;
  ends.done_ns = begin_ns + std::max(link_ns, load.cpu_ns);
  return ends;
}

}  // namespace commsched

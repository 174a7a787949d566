#include "plan/coalesce.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "plan/role_coalescer.h"

namespace commsched {
namespace {

// All roles along the one order.
class JobCoalescer {
 public:
  JobCoalescer(absl::Span<const RoleSpec> roles,
               absl::Span<const Dependencies* const> dependencies,
               const JobOrder& job, const PlanOptions& options,
               MergeClock* clock, LaunchReason::End off)
      : job_(job), clock_(clock) {
    roles_.reserve(roles.size());
    for (size_t r = 0; r < roles.size(); ++r) {
      roles_.emplace_back(*roles[r].graph, *dependencies[r], job.roles[r],
                          options, roles[r].profile, off);
    }
  }

  absl::StatusOr<std::vector<std::vector<Launch>>> Run() {
    for (uint32_t e = 0; e < job_.num_events(); ++e) {
      const absl::Span<const RoleOp> event = job_.Event(e);
      if (IsPointToPoint(KindOf(event.front()))) {
        AddPair(event, e * kKeyStride);
      } else {
        RETURN_IF_ERROR(AddCollective(event, e * kKeyStride));
      }
    }
    std::vector<std::vector<Launch>> launches;
    for (RoleCoalescer& role : roles_) role.Close({End::kLast, OpId()}, OpId());
    if (roles_.size() > 1) AgreeOnWays();
    for (RoleCoalescer& role : roles_) {
      launches.push_back(std::move(role.launches()));
    }
    return launches;
  }

 private:
  using End = LaunchReason::End;
  using Obstacle = RoleCoalescer::Obstacle;
  using RoleLaunch = std::pair<size_t, Launch*>;

  CollectiveKind KindOf(RoleOp which) const {
    return roles_[which.role].graph().op(which.op).collective.kind;
  }

  absl::Status AddCollective(absl::Span<const RoleOp> event, uint64_t key) {
    // What the others say counts for the first, who decides.
    Obstacle illegal = roles_[event[0].role].Illegal(event[0].op);
    for (size_t i = 1; i < event.size() && illegal.end == End::kNone; ++i) {
      const RoleCoalescer& role = roles_[event[i].role];
      if (role.Illegal(event[i].op).end != End::kNone ||
          !role.LeavesChoice(event[i].op)) {
        illegal.end = End::kOtherRole;
      }
    }
    if (event.size() > 1 && illegal.end == End::kNone &&
        !roles_[event[0].role].LeavesChoice(event[0].op)) {
      illegal.end = End::kOtherRole;
    }
    const bool by_cost = clock_ != nullptr && illegal.end == End::kNone;
    Obstacle cost;
    if (by_cost) cost = CostOf(clock_->Ask(event[0]));
    ASSIGN_OR_RETURN(Obstacle obstacle,
                     roles_[event[0].role].Decide(event[0].op, illegal,
                                                  by_cost ? &cost : nullptr));
    if (clock_ != nullptr) {
      obstacle.end == End::kNone ? clock_->Join(event[0])
                                 : clock_->Open(event[0]);
    }
    for (const RoleOp& each : event) {
      RoleCoalescer& role = roles_[each.role];
      if (obstacle.end != End::kNone) {
        // Another role's ops mean nothing here.
        Obstacle own = obstacle;
        if (!(each == event[0]) && !IsOfCost(obstacle.end)) {
          own = role.Illegal(each.op);
          if (own.end == End::kNone) own.end = End::kOtherRole;
        }
        role.Close(own, each.op);
        role.Open(each.op, key);
      }
      role.Join(each.op);
      if (obstacle.end == End::kNone && by_cost && cost.end == End::kNone) {
        role.Explain(cost);
      }
    }
    return absl::OkStatus();
  }

  static Obstacle CostOf(const MergeVerdict& verdict) {
    using Why = MergeVerdict::Why;
    Obstacle obstacle;
    obstacle.saved_ns = verdict.saved_ns;
    obstacle.late_ns = verdict.late_ns;
    obstacle.merged_ns = verdict.merged_ns;
    switch (verdict.why) {
      case Why::kJoins:
        break;
      case Why::kUnknownCost:
        obstacle.end = End::kUnknownCost;
        break;
      case Why::kTooLittle:
        obstacle.end = End::kTooLittle;
        break;
      case Why::kCosts:
        obstacle.end = End::kCosts;
        break;
    }
    return obstacle;
  }

  // Whether costs decided, which are the same for all roles.
  static bool IsOfCost(End end) {
    return end == End::kUnknownCost || end == End::kTooLittle ||
           end == End::kCosts || end == End::kNotShorter || end == End::kNoRoom;
  }

  // Each role decides for itself.
  void AddPair(absl::Span<const RoleOp> event, uint64_t key) {
    while (!event.empty()) {
      size_t own = 1;
      while (own < event.size() && event[own].role == event[0].role) ++own;
      RoleCoalescer& role = roles_[event[0].role];
      const absl::Span<const RoleOp> ops = event.first(own);
      const Obstacle obstacle = role.NotOfTick(ops);
      if (obstacle.end != End::kNone) {
        role.Close(obstacle, ops[0].op);
        role.Open(ops[0].op, key);
        if (clock_ != nullptr) clock_->Open(ops[0]);
      }
      for (const RoleOp& each : ops) role.Join(each.op);
      event.remove_prefix(own);
    }
  }

  // A launch of several roles, which have it at the same key, travels in place
  // only if it can in all of them, else as it would in the first.
  void AgreeOnWays() {
    std::map<uint64_t, std::vector<RoleLaunch>> shared;
    for (size_t r = 0; r < roles_.size(); ++r) {
      for (Launch& launch : roles_[r].launches()) {
        if (launch.members.size() == 1 || IsPointToPoint(launch.kind)) continue;
        shared[launch.key].push_back({r, &launch});
      }
    }
    std::vector<std::vector<Launch*>> apart(roles_.size());
    for (auto at = shared.begin(); at != shared.end();) {
      const bool agreed = at->second.size() == 1 || AllInOneOrder(at->second);
      if (!agreed) {
        for (const auto& [r, launch] : at->second) apart[r].push_back(launch);
      }
      at = agreed ? shared.erase(at) : std::next(at);
    }
    for (size_t r = 0; r < roles_.size(); ++r) {
      if (!apart[r].empty()) roles_[r].TakeApart(apart[r]);
    }
    for (const auto& [key, launches] : shared) {
      for (const auto& [r, launch] : launches) {
        CopyWay(*launches.front().second, launch);
      }
    }
  }

  static void CopyWay(const Launch& from, Launch* to) {
    to->way = from.way;
    to->staging_bytes = from.staging_bytes;
    to->staging_output = from.staging_output;
    to->reason.how = from.reason.how;
    to->reason.pack_ns = from.reason.pack_ns;
    to->reason.list_ns = from.reason.list_ns;
  }

  bool AllInOneOrder(const std::vector<RoleLaunch>& launches) const {
    auto names = [&](const RoleLaunch& which) {
      std::vector<absl::string_view> result;
      for (OpId op : which.second->members) {
        result.push_back(roles_[which.first].graph().op(op).name);
      }
      return result;
    };
    return std::all_of(launches.begin(), launches.end(), [&](const auto& each) {
      return each.second->way == Way::kInPlace &&
             names(each) == names(launches.front());
    });
  }

  const JobOrder& job_;
  MergeClock* const clock_;
  std::vector<RoleCoalescer> roles_;
};

}  // namespace

absl::StatusOr<std::vector<std::vector<Launch>>> Coalesce(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, const JobOrder& job,
    const PlanOptions& options, MergeClock* clock, LaunchReason::End off) {
  return JobCoalescer(roles, dependencies, job, options, clock, off).Run();
}

}  // namespace commsched

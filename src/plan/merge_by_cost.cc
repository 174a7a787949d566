#include "plan/merge_by_cost.h"

#include <utility>

#include "base/status_macros.h"
#include "plan/coalesce.h"
#include "plan/merge_clock.h"
#include "plan/merge_times.h"
#include "plan/predict/list_schedule.h"

namespace commsched {
namespace {

using LaunchLists = std::vector<std::vector<Launch>>;  // by role

size_t NumLaunches(const LaunchLists& launches) {
  size_t count = 0;
  for (const auto& role : launches) count += role.size();
  return count;
}

class Merger {
 public:
  Merger(absl::Span<const RoleSpec> roles,
         absl::Span<const Dependencies* const> dependencies, JobOrder* job,
         const PlanOptions& options)
      : roles_(roles),
        dependencies_(dependencies),
        job_(job),
        options_(options) {}

  absl::StatusOr<LaunchLists> Run(MergeReport* report) {
    PlanOptions unasked = options_;
    unasked.policy = nullptr;
    ASSIGN_OR_RETURN(LaunchLists apart,
                     LeaveApart(roles_, dependencies_, *job_, unasked));
    report->choice = MergeReport::Choice::kNothing;
    const size_t num_apart = NumLaunches(apart);
    if (num_apart < 2) return apart;
    ASSIGN_OR_RETURN(const MergeTimes times,
                     MergeTimes::Create(DraftsOf(&apart), options_));
    best_ns_ = times.step_ns();
    // The model knows of no step in which compute waits for all that is due.
    const bool serial = options_.schedule == Schedule::kSerial;
    if (!serial) report->apart_ns = best_ns_;
    ASSIGN_OR_RETURN(best_, Try(times, MergeRule::kNothing));
    // What a policy merges stays; and if nothing is hidden, there is nothing to
    // play.
    if (options_.policy != nullptr || serial) {
      if (NumLaunches(best_) < num_apart) {
        report->choice = MergeReport::Choice::kMerged;
      }
      return std::move(best_);
    }
    const size_t num_safe = NumLaunches(best_);
    if (num_safe < num_apart) {
      RETURN_IF_ERROR(Consider(std::move(best_), report));
    }
    ASSIGN_OR_RETURN(LaunchLists more, Try(times, MergeRule::kLessThanSaved));
    if (NumLaunches(more) < num_safe) {
      RETURN_IF_ERROR(Consider(std::move(more), report));
    }
    if (report->choice != MergeReport::Choice::kApart) return std::move(best_);
    return LeaveApart(roles_, dependencies_, *job_, options_);
  }

 private:
  absl::StatusOr<LaunchLists> Try(const MergeTimes& times,
                                  MergeRule rule) const {
    MergeClock clock(times, rule, options_.backend.lists);
    return Coalesce(roles_, dependencies_, *job_, options_, &clock,
                    LaunchReason::End::kNotShorter);
  }

  // Keeps `launches` if they make the shortest step so far: merged ones also if
  // unmerged ones make one as short.
  absl::Status Consider(LaunchLists launches, MergeReport* report) {
    ASSIGN_OR_RETURN(const int64_t step_ns, StepNs(&launches));
    const bool first = report->merged_ns == 0;
    if (first || step_ns < report->merged_ns) report->merged_ns = step_ns;
    if (step_ns < best_ns_ || (first && step_ns == best_ns_)) {
      best_ns_ = step_ns;
      best_ = std::move(launches);
      report->choice = MergeReport::Choice::kMerged;
    } else if (report->choice == MergeReport::Choice::kNothing) {
      report->choice = MergeReport::Choice::kApart;
    }
    return absl::OkStatus();
  }

  std::vector<RoleDraft> DraftsOf(LaunchLists* launches) const {
    std::vector<RoleDraft> drafts;
    for (size_t r = 0; r < roles_.size(); ++r) {
      drafts.push_back({.graph = roles_[r].graph,
                        .dependencies = dependencies_[r],
                        .profile = &roles_[r].profile,
                        .order = &job_->roles[r],
                        .launches = &(*launches)[r]});
    }
    return drafts;
  }

  absl::StatusOr<int64_t> StepNs(LaunchLists* launches) const {
    const JobModel model = ModelJob(DraftsOf(launches), options_);
    ASSIGN_OR_RETURN(const std::vector<uint32_t> sequence,
                     SequenceInKeyOrder(model));
    return PlaySequence(model, sequence, LinkUse::kShared).step_ns;
  }

  const absl::Span<const RoleSpec> roles_;
  const absl::Span<const Dependencies* const> dependencies_;
  JobOrder* const job_;
  const PlanOptions& options_;
  LaunchLists best_;  // before any is merged, with why not
  int64_t best_ns_ = 0;
};

}  // namespace

absl::StatusOr<LaunchLists> MergeByCost(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, JobOrder* job,
    const PlanOptions& options, MergeReport* report) {
  return Merger(roles, dependencies, job, options).Run(report);
}

absl::StatusOr<LaunchLists> LeaveApart(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies, const JobOrder& job,
    const PlanOptions& options) {
  PlanOptions unmerged = options;
  unmerged.coalesce_bytes = 0;
  return Coalesce(roles, dependencies, job, unmerged, /*clock=*/nullptr,
                  LaunchReason::End::kNotShorter);
}

}  // namespace commsched

#include "plan/predict/predict.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/lower_bound.h"
#include "plan/predict/playback.h"
#include "plan/sequence.h"

namespace commsched {
namespace {

uint64_t PeakBytesInFlight(const Plan& plan, const Sequence& sequence,
                           const std::vector<const StepTimes*>& steps) {
  struct Change {
    int64_t at;
    bool begins;  // a completion makes room first
    uint64_t bytes;
  };
  std::vector<Change> changes;
  for (const StepTimes* step : steps) {
    for (uint32_t k = 0; k < plan.launches.size(); ++k) {
      const uint32_t p = sequence.of_launch[k];
      const uint64_t bytes = plan.launches[k].payload_bytes;
      if (step->start[p] == step->end[p]) continue;
      changes.push_back({step->start[p], true, bytes});
      changes.push_back({step->end[p], false, bytes});
    }
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) {
              return std::tie(a.at, a.begins) < std::tie(b.at, b.begins);
            });
  uint64_t bytes = 0;
  uint64_t peak = 0;
  for (const Change& change : changes) {
    bytes = change.begins ? bytes + change.bytes : bytes - change.bytes;
    peak = std::max(peak, bytes);
  }
  return peak;
}

std::vector<Interval> ComputeIntervals(const Plan& plan,
                                       const Sequence& sequence,
                                       const StepTimes& step) {
  std::vector<Interval> intervals;
  for (const ComputeNode& node : plan.nodes) {
    const uint32_t p = sequence.of_op[node.op.value()];
    intervals.push_back({step.start[p], step.end[p]});
  }
  return intervals;
}

// The largest part.
ExposedCause CauseOf(const Blame& blame) {
  const std::pair<int64_t, ExposedCause> parts[] = {
      {blame.dependency_ns, ExposedCause::kDependency},
      {blame.cap_ns, ExposedCause::kCap},
      {blame.order_ns, ExposedCause::kOrder},
      {blame.straggler_ns, ExposedCause::kStraggler},
      {blame.link_ns, ExposedCause::kLink}};
  const auto most = std::max_element(
      std::begin(parts), std::end(parts),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  return most->first > 0 ? most->second : ExposedCause::kNone;
}

// One role of the job in its steady state.
class RoleView {
 public:
  RoleView(const Plan& plan, const Playback& playback, const SteadyPlay& steady,
           size_t role)
      : plan_(plan),
        playback_(playback),
        role_(role),
        sequence_(playback.sequence(role)),
        step_(steady.steps[steady.middle][role]),
        period_ns_(steady.period_ns) {
    std::vector<Interval> all;
    for (const std::vector<StepTimes>& step : steady.steps) {
      steps_.push_back(&step[role]);
      const auto own = ComputeIntervals(plan, sequence_, step[role]);
      all.insert(all.end(), own.begin(), own.end());
    }
    for (const StepTimes* step : steps_) {
      for (const LaunchTimes& times : step->launches) {
        wire_.push_back({times.begin_ns, times.off_link_ns});
      }
    }
    // All steps count: a launch may be hidden under the compute of the next.
    compute_ = BusyTime(std::move(all));
  }

  Prediction Measure() const {
    Prediction prediction;
    const auto own = ComputeIntervals(plan_, sequence_, step_);
    prediction.compute_ns = BusyTime(own).total_ns();
    int64_t origin_ns = own.empty() ? 0 : own.front().begin_ns;
    for (const Interval& each : own) {
      origin_ns = std::min(origin_ns, each.begin_ns);
    }
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      const LaunchPrediction launch = OfLaunch(k, origin_ns);
      prediction.comm_ns += playback_.link_ns(role_, k);
      prediction.exposed_ns += launch.exposed_ns;
      prediction.exposed_by += launch.exposed_by;
      prediction.launches.push_back(launch);
    }
    for (const Interval& each : own) {
      prediction.ops.push_back(
          {each.begin_ns - origin_ns, each.end_ns - origin_ns});
    }
    prediction.peak_bytes_in_flight =
        PeakBytesInFlight(plan_, sequence_, steps_);
    return prediction;
  }

 private:
  // When the link is free of what is on it at `at_ns`.
  int64_t FreeOfOthers(int64_t at_ns) const {
    const auto later = std::partition_point(
        wire_.begin(), wire_.end(),
        [&](const Interval& each) { return each.begin_ns <= at_ns; });
    return later == wire_.begin() ? at_ns : std::prev(later)->end_ns;
  }

  // Where the launch would have begun, cause by cause, and at the earliest: a
  // step before. In another order it would not wait for those that get onto the
  // link after it could have.
  HeldTransfer HoldOf(uint32_t k) const {
    const LaunchTimes& times = step_.launches[k];
    const int64_t overhead_ns = playback_.overhead_ns(role_, k);
    const auto begin = [&](int64_t issue_ns) {
      return std::max(issue_ns + overhead_ns, times.link_free_ns);
    };
    HeldTransfer held;
    held.length_ns = playback_.link_ns(role_, k);
    held.without_straggler_ns = begin(times.issue_ns);
    held.without_cap_ns = begin(std::max(times.ready_ns, times.order_ns));
    held.without_queue_ns = times.ready_ns + overhead_ns;
    held.without_order_ns = std::min(
        begin(times.ready_ns),
        std::max(held.without_queue_ns, FreeOfOthers(held.without_queue_ns)));
    held.without_dependency_ns = held.without_queue_ns - period_ns_;
    return held;
  }

  LaunchPrediction OfLaunch(uint32_t k, int64_t origin_ns) const {
    const LaunchTimes& times = step_.launches[k];
    const int64_t link_ns = playback_.link_ns(role_, k);
    LaunchPrediction launch;
    launch.ready_ns = std::max(times.ready_ns, times.order_ns) - origin_ns;
    launch.begin_ns = times.begin_ns - origin_ns;
    launch.end_ns = step_.end[sequence_.of_launch[k]] - origin_ns;
    launch.exposed_ns =
        link_ns - compute_.Covered({times.begin_ns, times.arrived_ns});
    if (launch.exposed_ns == 0) return launch;
    launch.exposed_by = ShareOut(launch.exposed_ns, HoldOf(k), compute_);
    launch.cause = CauseOf(launch.exposed_by);
    return launch;
  }

  const Plan& plan_;
  const Playback& playback_;
  const size_t role_;
  const Sequence& sequence_;
  const StepTimes& step_;  // the one looked at
  const int64_t period_ns_;
  std::vector<const StepTimes*> steps_;
  std::vector<Interval> wire_;  // launches on the link, in order
  BusyTime compute_;
};

}  // namespace

absl::StatusOr<std::vector<Prediction>> PredictJob(
    absl::Span<const PlayedRole> roles) {
  for (const PlayedRole& role : roles) {
    RETURN_IF_ERROR(CheckProfile(*role.plan->graph, *role.profile));
  }
  Playback playback(roles);
  const SteadyPlay steady = Settle(&playback);
  // Lanes and launches that share a core do not take turns in the playback; the
  // bound knows that they must.
  int64_t step_ns = steady.period_ns;
  const std::vector<LowerBound> bounds = LowerBoundsOf(roles);
  std::vector<Prediction> predictions;
  for (size_t r = 0; r < roles.size(); ++r) {
    Prediction prediction =
        RoleView(*roles[r].plan, playback, steady, r).Measure();
    const LowerBound& bound = bounds[r];
    prediction.bound_compute_ns = bound.compute_ns;
    prediction.bound_link_ns = bound.link_ns;
    prediction.bound_cycle_ns = bound.cycle_ns;
    prediction.bound_phases_ns = bound.phases_ns;
    prediction.lower_bound_ns = bound.step_ns;
    step_ns = std::max(step_ns, bound.step_ns);
    predictions.push_back(std::move(prediction));
  }
  for (Prediction& prediction : predictions) prediction.step_ns = step_ns;
  return predictions;
}

absl::StatusOr<int64_t> PredictStep(absl::Span<const PlayedRole> roles) {
  // Whether steps as they are played keep all bounds but that of the CPU: no
  // lane is slower than it is played, and no step shorter than they settle at.
  bool keeps_bounds = true;
  int64_t cpu_ns = 0;
  for (const PlayedRole& role : roles) {
    RETURN_IF_ERROR(CheckProfile(*role.plan->graph, *role.profile));
    cpu_ns = std::max(cpu_ns, ComputeBound(*role.plan, *role.profile));
    keeps_bounds = keeps_bounds && RanksPerCore(*role.profile) <= 1;
  }
  Playback playback(roles);
  const SteadyPlay steady = Settle(&playback);
  const int64_t step_ns = std::max(steady.period_ns, cpu_ns);
  if (keeps_bounds && steady.exact) return step_ns;
  return std::max(step_ns, LowerBoundsOf(roles).front().step_ns);
}

absl::StatusOr<Prediction> Predict(const Plan& plan,
                                   const CostProfile& profile) {
  ASSIGN_OR_RETURN(auto predictions, PredictJob({{&plan, &profile}}));
  return std::move(predictions.front());
}

}  // namespace commsched

#include "plan/predict.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "plan/cost_model.h"
#include "plan/lower_bound.h"
#include "plan/sequence.h"
#include "plan/steady_state.h"

namespace commsched {
namespace {

struct LaunchTimes {
  int64_t ready = 0;     // own waits met, without the window
  int64_t window = 0;    // waits of the window met
  int64_t order = 0;     // the launch before has been issued
  int64_t issue = 0;     // all of them
  int64_t begin = 0;     // on the link
  int64_t off_link = 0;  // off it
};

struct StepTimes {
  std::vector<int64_t> start;  // by position in the sequence
  std::vector<int64_t> end;    // complete
  std::vector<LaunchTimes> launches;
};

using Interval = std::pair<int64_t, int64_t>;

// Sorted and disjoint.
std::vector<Interval> Merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> merged;
  for (const Interval& each : intervals) {
    if (each.first >= each.second) continue;
    if (!merged.empty() && each.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, each.second);
    } else {
      merged.push_back(each);
    }
  }
  return merged;
}

int64_t Covered(const std::vector<Interval>& merged, Interval span) {
  auto it = std::lower_bound(
      merged.begin(), merged.end(), span.first,
      [](const Interval& a, int64_t at) { return a.second <= at; });
  int64_t covered = 0;
  for (; it != merged.end() && it->first < span.second; ++it) {
    covered +=
        std::min(it->second, span.second) - std::max(it->first, span.first);
  }
  return covered;
}

// Plays steps of the plan. Everything a node waits for comes before it in the
// sequence, so one sweep per step gives all times: a compute lane runs its ops
// in host order, launches are issued in key order, and the link carries one at
// a time in that order.
class Simulator {
 public:
  Simulator(const Plan& plan, const CostProfile& profile)
      : plan_(plan), sequence_(SequenceOf(plan)) {
    const double stretch = std::max(1.0, RanksPerCore(profile));
    auto stretched = [&](OpId op) {
      return static_cast<int64_t>(std::llround(
          static_cast<double>(OpCostNs(*plan.graph, op, profile)) * stretch));
    };
    for (const NodeRef& node : sequence_.nodes) {
      if (node.kind == NodeRef::Kind::kOp) {
        cpu_ns_.push_back(stretched(OpId(node.index)));
        continue;
      }
      int64_t cpu_ns = 0;
      for (OpId op : plan.launches[node.index].members) cpu_ns += stretched(op);
      cpu_ns_.push_back(cpu_ns);
    }
    for (const Launch& launch : plan.launches) {
      link_ns_.push_back(LinkNs(*plan.graph, launch, profile));
      overhead_ns_.push_back(OverheadNs(*plan.graph, launch, profile));
    }
    lane_free_.assign(plan.num_compute_lanes, 0);
    lane_complete_.assign(plan.num_comm_lanes, 0);
  }

  StepTimes Step(const StepTimes* before) {
    StepTimes now;
    now.start.resize(sequence_.nodes.size());
    now.end.resize(sequence_.nodes.size());
    now.launches.resize(plan_.launches.size());
    for (uint32_t p = 0; p < sequence_.nodes.size(); ++p) {
      const NodeRef node = sequence_.nodes[p];
      if (node.kind == NodeRef::Kind::kOp) {
        RunOp(p, plan_.nodes[plan_.node_of_op[node.index]], before, &now);
      } else {
        RunLaunch(p, node.index, before, &now);
      }
    }
    return now;
  }

  const Sequence& sequence() const { return sequence_; }
  int64_t link_ns(uint32_t launch) const { return link_ns_[launch]; }

 private:
  int64_t EndOf(const Wait& wait, const StepTimes* before,
                const StepTimes& now) const {
    if (wait.distance != 0 && before == nullptr) return 0;
    const uint32_t p = sequence_.PositionOf(wait.producer);
    return wait.distance == 0 ? now.end[p] : before->end[p];
  }

  void RunOp(uint32_t p, const ComputeNode& node, const StepTimes* before,
             StepTimes* now) {
    int64_t start = lane_free_[node.lane];
    for (const Wait& wait : node.waits) {
      start = std::max(start, EndOf(wait, before, *now));
    }
    now->start[p] = start;
    now->end[p] = lane_free_[node.lane] = start + cpu_ns_[p];
  }

  void RunLaunch(uint32_t p, uint32_t key, const StepTimes* before,
                 StepTimes* now) {
    const Launch& launch = plan_.launches[key];
    LaunchTimes& times = now->launches[key];
    times.order = last_issue_;
    for (OpId op : launch.producers) {
      times.ready =
          std::max(times.ready, now->end[sequence_.of_op[op.value()]]);
    }
    for (const Wait& wait : launch.waits) {
      int64_t& met =
          wait.cause == WaitCause::kWindow ? times.window : times.ready;
      met = std::max(met, EndOf(wait, before, *now));
    }
    times.issue = std::max({times.ready, times.window, times.order});
    times.begin = std::max(times.issue + overhead_ns_[key], link_free_);
    times.off_link = times.begin + link_ns_[key];
    last_issue_ = times.issue;
    link_free_ = times.off_link;
    int64_t& complete = lane_complete_[launch.lane];
    complete = std::max({complete, times.off_link, times.begin + cpu_ns_[p]});
    now->start[p] = times.issue;
    now->end[p] = complete;
  }

  const Plan& plan_;
  const Sequence sequence_;
  std::vector<int64_t> cpu_ns_;       // by position, stretched
  std::vector<int64_t> link_ns_;      // by launch
  std::vector<int64_t> overhead_ns_;  // by launch
  std::vector<int64_t> lane_free_;
  std::vector<int64_t> lane_complete_;
  int64_t last_issue_ = 0;
  int64_t link_free_ = 0;
};

// The step looked at, with those around it whose compute may hide its launches.
struct Steady {
  std::vector<StepTimes> steps;
  size_t middle = 0;
  int64_t period = 0;
};

Steady Settle(Simulator* simulator) {
  Steady result;
  SteadyState steady;
  std::vector<StepTimes>& steps = result.steps;
  bool done = false;
  while (!done) {
    steps.push_back(simulator->Step(steps.empty() ? nullptr : &steps.back()));
    done = steady.Add(steps.back().end);
    if (steps.size() > 2) steps.erase(steps.begin());
  }
  result.period = steady.Period();
  result.middle = steps.size() - 1;
  for (int i = 0; i < 2; ++i) steps.push_back(simulator->Step(&steps.back()));
  return result;
}

// What held the launch back the longest.
ExposedCause CauseOf(const LaunchTimes& times, int64_t overhead_ns,
                     int64_t exposed_ns) {
  if (exposed_ns <= 0) return ExposedCause::kNone;
  const int64_t order = std::max<int64_t>(0, times.order - times.ready);
  const int64_t cap =
      std::max<int64_t>(0, times.window - std::max(times.ready, times.order));
  const int64_t link = times.begin - times.issue - overhead_ns;
  const int64_t rest = exposed_ns - order - cap - link;
  const int64_t most = std::max({order, cap, link, rest});
  if (most == rest) return ExposedCause::kDependency;
  if (most == cap) return ExposedCause::kCap;
  return most == order ? ExposedCause::kOrder : ExposedCause::kLink;
}

uint64_t PeakBytesInFlight(const Plan& plan, const Sequence& sequence,
                           const std::vector<StepTimes>& steps) {
  struct Change {
    int64_t at;
    bool begins;  // a completion makes room first
    uint64_t bytes;
  };
  std::vector<Change> changes;
  for (const StepTimes& step : steps) {
    for (uint32_t k = 0; k < plan.launches.size(); ++k) {
      const uint32_t p = sequence.of_launch[k];
      const uint64_t bytes = plan.launches[k].weight_bytes;
      if (step.start[p] == step.end[p]) continue;
      changes.push_back({step.start[p], true, bytes});
      changes.push_back({step.end[p], false, bytes});
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

// Compute of all simulated steps: a launch may be hidden under the next one's.
std::vector<Interval> BusyIntervals(const Plan& plan, const Sequence& sequence,
                                    const std::vector<StepTimes>& steps) {
  std::vector<Interval> busy;
  for (const StepTimes& step : steps) {
    const auto own = ComputeIntervals(plan, sequence, step);
    busy.insert(busy.end(), own.begin(), own.end());
  }
  return Merged(std::move(busy));
}

// Launches of the middle step, on a clock that starts with its first op.
void AddLaunches(const Plan& plan, const CostProfile& profile,
                 const Simulator& simulator, const Steady& steady,
                 Prediction* prediction) {
  const Sequence& sequence = simulator.sequence();
  const StepTimes& step = steady.steps[steady.middle];
  const auto busy = BusyIntervals(plan, sequence, steady.steps);
  const auto own = ComputeIntervals(plan, sequence, step);
  const int64_t origin =
      own.empty() ? 0 : std::min_element(own.begin(), own.end())->first;
  for (uint32_t k = 0; k < plan.launches.size(); ++k) {
    const LaunchTimes& times = step.launches[k];
    const int64_t link_ns = simulator.link_ns(k);
    LaunchPrediction launch;
    launch.ready_ns = std::max(times.ready, times.order) - origin;
    launch.begin_ns = times.begin - origin;
    launch.end_ns = step.end[sequence.of_launch[k]] - origin;
    launch.exposed_ns = link_ns - Covered(busy, {times.begin, times.off_link});
    launch.cause =
        CauseOf(times, OverheadNs(*plan.graph, plan.launches[k], profile),
                launch.exposed_ns);
    prediction->comm_ns += link_ns;
    prediction->exposed_ns += launch.exposed_ns;
    prediction->launches.push_back(launch);
  }
}

}  // namespace

absl::StatusOr<Prediction> Predict(const Plan& plan,
                                   const CostProfile& profile) {
  RETURN_IF_ERROR(CheckProfile(*plan.graph, profile));
  Simulator simulator(plan, profile);
  const Steady steady = Settle(&simulator);
  const Sequence& sequence = simulator.sequence();

  Prediction prediction;
  const StepTimes& step = steady.steps[steady.middle];
  for (const Interval& each : Merged(ComputeIntervals(plan, sequence, step))) {
    prediction.compute_ns += each.second - each.first;
  }
  AddLaunches(plan, profile, simulator, steady, &prediction);
  prediction.peak_bytes_in_flight =
      PeakBytesInFlight(plan, sequence, steady.steps);

  const LowerBound bound = LowerBoundOf(plan, profile);
  prediction.bound_compute_ns = bound.compute_ns;
  prediction.bound_link_ns = bound.link_ns;
  prediction.bound_cycle_ns = bound.cycle_ns;
  prediction.bound_phases_ns = bound.phases_ns;
  prediction.lower_bound_ns = bound.step_ns;
  // Lanes and launches that share a core do not take turns in the simulation;
  // the bound knows that they must.
  prediction.step_ns = std::max(steady.period, bound.step_ns);
  return prediction;
}

}  // namespace commsched

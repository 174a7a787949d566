#include "trace/metrics.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace commsched {
namespace {

struct Step {
  Interval window;
  StepMetrics metrics;
  bool complete = false;
};

// Every step whose begin is held. A step is complete if the next begin is its
// successor's; after the last step of a session another session's may follow.
std::vector<Step> Steps(const std::vector<Record>& records) {
  std::vector<Step> steps;
  for (const Record& record : records) {
    if (record.kind != RecordKind::kStepBegin) continue;
    if (!steps.empty() && steps.back().metrics.step + 1 == record.step) {
      steps.back().window.end_ns = record.begin_ns;
      steps.back().complete = true;
    }
    Step step;
    step.window = {record.begin_ns, record.begin_ns};
    step.metrics.step = record.step;
    steps.push_back(step);
  }
  return steps;
}

// Launches belong to the step whose number they carry, wherever they ran: the
// latest of that number, should two sessions share the recorder.
void CountLaunches(const std::vector<Record>& records, const RecordNames& names,
                   std::vector<Step>& steps) {
  absl::flat_hash_map<uint64_t, size_t> step_of_number;
  size_t num_begun = 0;
  for (const Record& record : records) {
    if (record.kind == RecordKind::kStepBegin) {
      step_of_number[record.step] = num_begun++;
      continue;
    }
    if (record.kind != RecordKind::kLaunch) continue;
    const auto found = step_of_number.find(record.step);
    if (found == step_of_number.end()) continue;
    StepMetrics& metrics = steps[found->second].metrics;
    ++metrics.num_launches;
    metrics.num_collectives += record.index < names.launches.size()
                                   ? names.launches[record.index].num_members
                                   : 1;
    metrics.peak_bytes_in_flight =
        std::max(metrics.peak_bytes_in_flight, record.value);
  }
}

void Measure(const std::vector<Record>& records, const RecordNames& names,
             std::vector<Step>& steps) {
  CountLaunches(records, names, steps);
  const BusyTime compute = BusyTimeOf(records, {RecordKind::kCompute});
  const BusyTime comm = BusyTimeOf(records, {RecordKind::kLaunch});
  const BusyTime either =
      BusyTimeOf(records, {RecordKind::kCompute, RecordKind::kLaunch});
  for (Step& step : steps) {
    if (!step.complete) continue;
    StepMetrics& metrics = step.metrics;
    metrics.step_ns = step.window.end_ns - step.window.begin_ns;
    metrics.compute_ns = compute.Covered(step.window);
    metrics.comm_ns = comm.Covered(step.window);
    metrics.exposed_ns = either.Covered(step.window) - metrics.compute_ns;
  }
}

}  // namespace

BusyTime BusyTimeOf(const std::vector<Record>& records,
                    std::initializer_list<RecordKind> kinds) {
  std::vector<Interval> intervals;
  for (const Record& record : records) {
    if (std::find(kinds.begin(), kinds.end(), record.kind) == kinds.end()) {
      continue;
    }
    intervals.push_back({record.begin_ns, record.end_ns});
  }
  return BusyTime(std::move(intervals));
}

std::vector<StepMetrics> ComputeStepMetrics(const Recorder& recorder) {
  const std::vector<Record> records = recorder.Snapshot();
  std::vector<Step> steps = Steps(records);
  Measure(records, recorder.names(), steps);
  std::vector<StepMetrics> complete;
  for (const Step& step : steps) {
    if (step.complete) complete.push_back(step.metrics);
  }
  return complete;
}

std::optional<StepMetrics> ComputeRecentStep(const Recorder& recorder,
                                             uint64_t step) {
  constexpr uint64_t kSteps = 4;
  const std::vector<Record> records = recorder.SnapshotOfLast(kSteps);
  std::vector<Step> steps = Steps(records);
  if (steps.empty()) return std::nullopt;
  if (Step& last = steps.back(); !last.complete) {
    for (const Record& record : records) {
      last.window.end_ns = std::max(last.window.end_ns, record.end_ns);
    }
    last.complete = true;
  }
  Measure(records, recorder.names(), steps);
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].metrics.step == step && steps[i].complete) {
      return steps[i].metrics;
    }
  }
  return std::nullopt;
}

}  // namespace commsched

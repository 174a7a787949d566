#include "examples/trainer/report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {
namespace {

double Overlap(const StepRecord& record) {
  if (record.comm_s <= 0) return 0;
  return 100 * (1 - record.exposed_s / record.comm_s);
}

template <typename Field>
double Median(const std::vector<StepRecord>& records, Field&& field) {
  if (records.empty()) return 0;
  std::vector<double> values;
  for (const StepRecord& record : records) values.push_back(field(record));
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

BlameRecord MeanBlame(const std::vector<StepRecord>& records) {
  BlameRecord mean;
  const double weight = 1.0 / static_cast<double>(records.size());
  for (const StepRecord& record : records) {
    mean.cap_s += weight * record.blame.cap_s;
    mean.dependency_s += weight * record.blame.dependency_s;
    mean.order_s += weight * record.blame.order_s;
    mean.link_s += weight * record.blame.link_s;
    mean.straggler_s += weight * record.blame.straggler_s;
  }
  return mean;
}

// The slowest rank's record of each step that all ranks have.
std::vector<StepRecord> WorstOfEachStep(
    const std::vector<std::vector<StepRecord>>& ranks,
    const std::vector<uint64_t>& excluded) {
  struct Entry {
    size_t num_ranks = 0;
    StepRecord worst;
  };
  std::map<uint64_t, Entry> steps;
  for (const std::vector<StepRecord>& records : ranks) {
    for (const StepRecord& record : records) {
      Entry& entry = steps[record.step];
      ++entry.num_ranks;
      if (record.step_s > entry.worst.step_s) entry.worst = record;
    }
  }
  std::vector<StepRecord> worst;
  for (const auto& [step, entry] : steps) {
    const bool is_excluded =
        std::binary_search(excluded.begin(), excluded.end(), step);
    if (entry.num_ranks == ranks.size() && !is_excluded) {
      worst.push_back(entry.worst);
    }
  }
  return worst;
}

std::string Line(absl::string_view name, const std::string& value) {
  return absl::StrFormat("  %-24s %s\n", name, value);
}

// "12.1 ms: dependency 9 ms, link 3.1 ms"
std::string BlameLine(const BlameRecord& blame) {
  std::string text = FormatSeconds(blame.total_s());
  const std::pair<const char*, double> parts[] = {
      {"cap", blame.cap_s},
      {"dependency", blame.dependency_s},
      {"order", blame.order_s},
      {"link", blame.link_s},
      {"straggler", blame.straggler_s}};
  const char* separator = ": ";
  for (const auto& [name, seconds] : parts) {
    if (seconds <= 0) continue;
    absl::StrAppend(&text, separator, name, " ", FormatSeconds(seconds));
    separator = ", ";
  }
  return text;
}

// Of a run that is too short for more.
std::string MeanTimeLine(const Report& report) {
  return Line("step time", absl::StrFormat("%s, mean of %d steps",
                                           FormatSeconds(report.step.step_s),
                                           report.steps - report.first_step));
}

std::string TimeLines(const Report& report) {
  const StepSummary& s = report.step;
  if (s.steps == 0) return MeanTimeLine(report);
  std::string text;
  absl::StrAppend(
      &text, Line("step time", FormatSeconds(s.step_s)),
      Line("compute", FormatSeconds(s.compute_s)),
      Line("communication", FormatSeconds(s.comm_s)),
      Line("exposed communication", FormatSeconds(s.exposed_s)),
      Line("exposed, mean", BlameLine(s.blame)),
      Line("overlap", absl::StrFormat("%.1f %%", s.overlap_pct)),
      Line("launches per step", absl::StrFormat("%.0f (%.0f collectives)",
                                                s.launches, s.collectives)));
  return text;
}

// What was resident; more than is accounted for, and of all ranks in a process.
std::string ResidentLine(const Report& report) {
  if (report.process_peak_bytes == 0) return "";
  std::string text =
      FormatBytes(static_cast<double>(report.process_peak_bytes));
  if (report.ranks_per_process > 1) {
    absl::StrAppend(&text, " of the process with its ",
                    report.ranks_per_process, " ranks");
  }
  if (report.save_bytes > 0) {
    absl::StrAppend(&text, ", ",
                    FormatBytes(static_cast<double>(report.save_bytes)),
                    " of it for saves");
  }
  return Line("resident at the peak", text);
}

// Of gradients, where there is something to accumulate.
std::string AccumulationLine(const Report& report) {
  if (report.micro_batches == 1) return "";
  return Line("accumulated gradients",
              absl::StrFormat(
                  "%s over %d micro-batches",
                  FormatBytes(static_cast<double>(report.accumulated_bytes)),
                  report.micro_batches));
}

// Where others than the given ones were chosen.
std::string BucketLine(const Report& report) {
  if (report.given_buckets == 0 || report.given_buckets == report.num_buckets) {
    return "";
  }
  return Line("buckets",
              absl::StrFormat("%d instead of %d: predicted step %s instead of "
                              "%s",
                              report.num_buckets, report.given_buckets,
                              FormatSeconds(report.chosen_step_s),
                              FormatSeconds(report.given_step_s)));
}

// With ZeRO-3.
std::string LiveLine(const Report& report) {
  if (report.peak_live_bytes == 0) return "";
  return Line(
      "live buckets, measured",
      absl::StrFormat("%s of %s",
                      FormatBytes(static_cast<double>(report.peak_live_bytes)),
                      FormatBytes(static_cast<double>(report.arena_bytes))));
}

// With --offload-optimizer.
std::string OffloadLine(const Report& report) {
  if (report.offloaded_bytes == 0) return "";
  return Line(
      "offloaded per rank",
      absl::StrFormat("%s by way of %s; copies %s per step, %s exposed",
                      FormatBytes(static_cast<double>(report.offloaded_bytes)),
                      FormatBytes(static_cast<double>(report.staging_bytes)),
                      FormatSeconds(report.copy_s),
                      FormatSeconds(report.copy_exposed_s)));
}

// With loss scaling.
std::string LossScaleLine(const Report& report) {
  if (report.loss_scale == 1) return "";
  return Line("loss scale", absl::StrFormat("%.0f", report.loss_scale));
}

// Also with clipping alone.
std::string SkippedLine(const Report& report) {
  if (report.skipped_steps == 0) return "";
  return Line("skipped steps", absl::StrFormat("%d, gradients not finite",
                                               report.skipped_steps));
}

std::string SaveLine(const Report& report) {
  if (report.num_saves == 0) return "";
  return Line(
      "checkpoints",
      absl::StrFormat("%d; each held a step up for %s, and %s for the "
                      "one before",
                      report.num_saves, FormatSeconds(report.save_copy_s),
                      FormatSeconds(report.save_wait_s)));
}

}  // namespace

StepSummary Summarize(const std::vector<std::vector<StepRecord>>& ranks,
                      uint64_t first_step,
                      const std::vector<uint64_t>& excluded) {
  const std::vector<StepRecord> all = WorstOfEachStep(ranks, excluded);
  std::vector<StepRecord> used;
  for (const StepRecord& record : all) {
    if (record.step >= first_step) used.push_back(record);
  }
  if (used.empty()) used = all;
  StepSummary summary;
  summary.steps = static_cast<int64_t>(used.size());
  summary.step_s = Median(used, [](const auto& r) { return r.step_s; });
  summary.compute_s = Median(used, [](const auto& r) { return r.compute_s; });
  summary.comm_s = Median(used, [](const auto& r) { return r.comm_s; });
  summary.exposed_s = Median(used, [](const auto& r) { return r.exposed_s; });
  if (!used.empty()) summary.blame = MeanBlame(used);
  summary.overlap_pct = Median(used, Overlap);
  summary.launches = Median(used, [](const auto& r) { return r.launches; });
  summary.collectives =
      Median(used, [](const auto& r) { return r.collectives; });
  return summary;
}

std::string FormatTable(const Report& report) {
  const std::string cap =
      report.cap_bytes == 0
          ? "no cap"
          : absl::StrCat("cap ",
                         FormatBytes(static_cast<double>(report.cap_bytes)));
  const LowerBound& bound = report.bound;
  const std::string measured =
      report.step.steps == 0
          ? "no steady step was measured"
          : absl::StrFormat("median of %d steps, slowest rank",
                            report.step.steps);
  std::string text =
      absl::StrFormat("%d ranks, ZeRO-%d, %s, %s; %s\n", report.ranks,
                      report.zero, report.model, report.schedule, measured);
  absl::StrAppend(
      &text, TimeLines(report),
      Line("peak bytes in flight",
           absl::StrCat(
               FormatBytes(static_cast<double>(report.peak_bytes_in_flight)),
               " (", cap, ")")),
      Line("memory per rank",
           FormatBytes(static_cast<double>(report.peak_bytes_per_rank()))),
      ResidentLine(report),
      Line("model state per rank",
           absl::StrFormat("%s; ZeRO-%d comes to %s",
                           FormatBytes(static_cast<double>(report.state_bytes)),
                           report.zero,
                           FormatBytes(static_cast<double>(report.due_bytes)))),
      Line("activations per rank",
           FormatBytes(static_cast<double>(report.activation_bytes))),
      BucketLine(report), LiveLine(report), OffloadLine(report),
      AccumulationLine(report), LossScaleLine(report), SkippedLine(report),
      SaveLine(report),
      Line("lower bound",
           absl::StrFormat(
               "%s (CPU %s, link %s, longest cycle %s, phases %s)",
               FormatSeconds(bound.total_s), FormatSeconds(bound.compute_s),
               FormatSeconds(bound.link_s), FormatSeconds(bound.cycle_s),
               FormatSeconds(bound.phases_s))),
      Line("predicted step", FormatSeconds(bound.predicted_s)),
      Line("step / lower bound",
           absl::StrFormat("%.3f", report.ratio_to_lower_bound())));
  return text;
}

std::string FormatJson(const Report& report) {
  const StepSummary& s = report.step;
  const nlohmann::ordered_json json = {
      {"ranks", report.ranks},
      {"zero", report.zero},
      {"model", report.model},
      {"schedule", report.schedule},
      {"steps", report.steps},
      {"first_step", report.first_step},
      {"ended_early", report.end_signal != 0},
      {"steady_steps", s.steps},
      {"loss", report.loss},
      {"val_loss", report.val_loss},
      {"tokens_per_s", report.tokens_per_s},
      {"step_time_s", s.step_s},
      {"compute_s", s.compute_s},
      {"comm_s", s.comm_s},
      {"exposed_comm_s", s.exposed_s},
      {"exposed_mean_s", s.blame.total_s()},
      {"exposed_by",
       {{"cap_s", s.blame.cap_s},
        {"dependency_s", s.blame.dependency_s},
        {"order_s", s.blame.order_s},
        {"link_s", s.blame.link_s},
        {"straggler_s", s.blame.straggler_s}}},
      {"overlap_pct", s.overlap_pct},
      {"launches_per_step", s.launches},
      {"collectives_per_step", s.collectives},
      {"peak_bytes_in_flight", report.peak_bytes_in_flight},
      {"cap_bytes", report.cap_bytes},
      {"peak_bytes_per_rank", report.peak_bytes_per_rank()},
      {"process_peak_bytes", report.process_peak_bytes},
      {"ranks_per_process", report.ranks_per_process},
      {"save_bytes", report.save_bytes},
      {"parameter_bytes", report.parameter_bytes},
      {"gradient_bytes", report.gradient_bytes},
      {"optimizer_bytes", report.optimizer_bytes},
      {"arena_bytes", report.arena_bytes},
      {"peak_live_bytes", report.peak_live_bytes},
      {"micro_batches", report.micro_batches},
      {"accumulated_bytes", report.accumulated_bytes},
      {"peak_model_state_bytes", report.state_bytes},
      {"due_model_state_bytes", report.due_bytes},
      {"activation_bytes", report.activation_bytes},
      {"num_parameters", report.num_parameters},
      {"num_buckets", report.num_buckets},
      {"given_buckets", report.given_buckets},
      {"given_step_s", report.given_step_s},
      {"chosen_step_s", report.chosen_step_s},
      {"lower_bound_s", report.bound.total_s},
      {"bound_compute_s", report.bound.compute_s},
      {"bound_link_s", report.bound.link_s},
      {"bound_cycle_s", report.bound.cycle_s},
      {"bound_phases_s", report.bound.phases_s},
      {"predicted_step_s", report.bound.predicted_s},
      {"ratio_to_lower_bound", report.ratio_to_lower_bound()},
      {"offloaded_bytes", report.offloaded_bytes},
      {"staging_bytes", report.staging_bytes},
      {"copy_s", report.copy_s},
      {"copy_exposed_s", report.copy_exposed_s},
      {"loss_scale", report.loss_scale},
      {"skipped_steps", report.skipped_steps},
      {"num_saves", report.num_saves},
      {"save_copy_s", report.save_copy_s},
      {"save_wait_s", report.save_wait_s},
      {"plan_fingerprint", report.plan_fingerprint},
      {"weights_sha256", report.weights_sha256},
  };
  return json.dump();
}

}  // namespace commsched::trainer

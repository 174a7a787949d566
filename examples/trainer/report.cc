#include "examples/trainer/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "examples/trainer/tally.h"

namespace commsched::trainer {
namespace {

constexpr std::pair<const char*, int64_t commsched_blame_t::*> kCauses[] = {
    {"cap", &commsched_blame_t::cap_ns},
    {"dependency", &commsched_blame_t::dependency_ns},
    {"order", &commsched_blame_t::order_ns},
    {"link", &commsched_blame_t::link_ns},
    {"straggler", &commsched_blame_t::straggler_ns}};

double Overlap(const commsched_step_metrics_t& step) {
  if (step.comm_ns <= 0) return 0;
  return 100 * (1 - static_cast<double>(step.exposed_ns) /
                        static_cast<double>(step.comm_ns));
}

template <typename Field>
double MedianOver(const std::vector<StepRecord>& records, Field&& field) {
  std::vector<double> values;
  for (const StepRecord& record : records) {
    values.push_back(field(record.metrics));
  }
  return Median(std::move(values));
}

commsched_blame_t MeanBlame(const std::vector<StepRecord>& records) {
  commsched_blame_t mean = commsched_blame_init();
  for (const auto& [name, ns] : kCauses) {
    for (const StepRecord& record : records) mean.*ns += record.blame.*ns;
    mean.*ns /= static_cast<int64_t>(records.size());
    mean.exposed_ns += mean.*ns;
  }
  return mean;
}

// The slowest rank's record of each step that all ranks have.
std::vector<StepRecord> WorstOfEachStep(
    const std::vector<std::vector<StepRecord>>& ranks,
    const std::vector<uint64_t>& excluded) {
  Tally<StepRecord> tally(static_cast<int64_t>(ranks.size()));
  std::vector<StepRecord> worst;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const StepRecord& record : ranks[rank]) {
      const uint64_t step = record.metrics.step;
      const std::vector<StepRecord> all = tally.Add(
          static_cast<int64_t>(rank), static_cast<int64_t>(step), record);
      const bool is_excluded =
          std::binary_search(excluded.begin(), excluded.end(), step);
      if (all.empty() || is_excluded) continue;
      worst.push_back(*std::max_element(
          all.begin(), all.end(), [](const StepRecord& a, const StepRecord& b) {
            return a.metrics.step_ns < b.metrics.step_ns;
          }));
    }
  }
  return worst;
}

// The table, line by line. What there was nothing of is left out.
class Table {
 public:
  template <typename... Args>
  void Add(absl::string_view name, const absl::FormatSpec<Args...>& format,
           const Args&... args) {
    absl::StrAppendFormat(&text_, "  %-24s %s\n", name,
                          absl::StrFormat(format, args...));
  }
  void AddBytes(absl::string_view name, uint64_t bytes) {
    Add(name, "%s", FormatBytes(bytes));
  }
  void AddSeconds(absl::string_view name, double seconds) {
    Add(name, "%s", FormatSeconds(seconds));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// "12.1 ms: dependency 9 ms, link 3.1 ms"
std::string BlameText(const commsched_blame_t& blame) {
  std::string text = FormatSeconds(SecondsOf(blame.exposed_ns));
  const char* separator = ": ";
  for (const auto& [name, ns] : kCauses) {
    if (blame.*ns <= 0) continue;
    absl::StrAppend(&text, separator, name, " ",
                    FormatSeconds(SecondsOf(blame.*ns)));
    separator = ", ";
  }
  return text;
}

void AddTimes(const Report& report, Table* table) {
  const StepSummary& s = report.step;
  if (s.steps == 0) {  // The run was too short for more.
    table->Add("step time", "%s, mean of %d steps", FormatSeconds(s.step_s),
               report.steps - report.first_step);
    return;
  }
  table->AddSeconds("step time", s.step_s);
  table->AddSeconds("compute", s.compute_s);
  table->AddSeconds("communication", s.comm_s);
  table->AddSeconds("exposed communication", s.exposed_s);
  table->Add("exposed, mean", "%s", BlameText(s.blame));
  table->Add("overlap", "%.1f %%", s.overlap_pct);
  table->Add("launches per step", "%.0f (%.0f collectives)", s.launches,
             s.collectives);
}

// What is accounted for, and what was resident: that is more, and of all ranks
// in a process.
void AddMemory(const Report& report, Table* table) {
  table->Add("peak bytes in flight", "%s (%s)",
             FormatBytes(report.peak_bytes_in_flight),
             report.options.cap_bytes == 0
                 ? "no cap"
                 : absl::StrCat("cap ", FormatBytes(report.options.cap_bytes)));
  table->AddBytes("memory per rank", report.peak_bytes_per_rank());
  if (report.process_peak_bytes > 0) {
    std::string text = FormatBytes(report.process_peak_bytes);
    if (report.ranks_per_process > 1) {
      absl::StrAppend(&text, " of the process with its ",
                      report.ranks_per_process, " ranks");
    }
    if (report.save_bytes > 0) {
      absl::StrAppend(&text, ", ", FormatBytes(report.save_bytes),
                      " of it for saves");
    }
    table->Add("resident at the peak", "%s", text);
  }
  table->Add("model state per rank", "%s; ZeRO-%d comes to %s",
             FormatBytes(report.engine.state_bytes), report.options.zero,
             FormatBytes(report.engine.due_bytes));
  table->AddBytes("activations per rank", report.activation_bytes);
}

// Lines that only some runs have.
void AddOptional(const Report& report, Table* table) {
  const commsched_engine_info_t& e = report.engine;
  if (e.given_buckets != 0 && e.given_buckets != e.num_buckets) {
    table->Add("buckets", "%d instead of %d: predicted step %s instead of %s",
               e.num_buckets, e.given_buckets,
               FormatSeconds(SecondsOf(e.step_ns)),
               FormatSeconds(SecondsOf(e.given_step_ns)));
  }
  if (report.peak_live_bytes > 0) {  // With ZeRO-3.
    table->Add("live buckets, measured", "%s of %s",
               FormatBytes(report.peak_live_bytes), FormatBytes(e.arena_bytes));
  }
  if (e.offloaded_bytes + e.offloaded_gradient_bytes > 0) {
    table->Add(
        "offloaded per rank", "%s by way of %s; copies %s per step, %s exposed",
        FormatBytes(e.offloaded_bytes + e.offloaded_gradient_bytes),
        FormatBytes(e.staging_bytes + e.gradient_staging_bytes),
        FormatSeconds(report.copy_s), FormatSeconds(report.copy_exposed_s));
  }
  if (report.options.micro_batches > 1) {
    table->Add("accumulated gradients", "%s over %d micro-batches",
               FormatBytes(e.accumulated_bytes), report.options.micro_batches);
  }
  if (report.loss_scale != 1) {
    table->Add("loss scale", "%.0f", report.loss_scale);
  }
  if (report.skipped_steps > 0) {  // Also with clipping alone.
    table->Add("skipped steps", "%d, gradients not finite",
               report.skipped_steps);
  }
  if (report.num_saves > 0) {
    table->Add("checkpoints",
               "%d; each held a step up for %s, and %s for the one before",
               report.num_saves, FormatSeconds(report.save_copy_s),
               FormatSeconds(report.save_wait_s));
  }
}

}  // namespace

StepSummary Summarize(const std::vector<std::vector<StepRecord>>& ranks,
                      uint64_t first_step,
                      const std::vector<uint64_t>& excluded) {
  const std::vector<StepRecord> all = WorstOfEachStep(ranks, excluded);
  std::vector<StepRecord> used;
  for (const StepRecord& record : all) {
    if (record.metrics.step >= first_step) used.push_back(record);
  }
  if (used.empty()) used = all;
  StepSummary summary;
  summary.steps = static_cast<int64_t>(used.size());
  const auto seconds = [&used](int64_t commsched_step_metrics_t::*ns) {
    return MedianOver(used, [ns](const auto& m) { return SecondsOf(m.*ns); });
  };
  summary.step_s = seconds(&commsched_step_metrics_t::step_ns);
  summary.compute_s = seconds(&commsched_step_metrics_t::compute_ns);
  summary.comm_s = seconds(&commsched_step_metrics_t::comm_ns);
  summary.exposed_s = seconds(&commsched_step_metrics_t::exposed_ns);
  if (!used.empty()) summary.blame = MeanBlame(used);
  summary.overlap_pct = MedianOver(used, Overlap);
  summary.launches =
      MedianOver(used, [](const auto& m) { return m.num_launches; });
  summary.collectives =
      MedianOver(used, [](const auto& m) { return m.num_collectives; });
  return summary;
}

std::string FormatTable(const Report& report) {
  const std::string measured =
      report.step.steps == 0
          ? "no steady step was measured"
          : absl::StrFormat("median of %d steps, slowest rank",
                            report.step.steps);
  Table table;
  AddTimes(report, &table);
  AddMemory(report, &table);
  AddOptional(report, &table);
  const auto seconds = [](int64_t ns) { return FormatSeconds(SecondsOf(ns)); };
  const commsched_prediction_t& bound = report.bound;
  table.Add("lower bound", "%s (CPU %s, link %s, longest cycle %s, phases %s)",
            seconds(bound.lower_bound_ns), seconds(bound.bound_compute_ns),
            seconds(bound.bound_link_ns), seconds(bound.bound_cycle_ns),
            seconds(bound.bound_phases_ns));
  table.Add("predicted step", "%s", seconds(bound.step_ns));
  table.Add("step / lower bound", "%.3f", report.ratio_to_lower_bound());
  const Options& options = report.options;
  return absl::StrFormat("%d ranks, ZeRO-%d, %s, %s; %s\n%s", options.ranks,
                         options.zero, options.model,
                         options.serial ? "serial" : "overlap", measured,
                         table.Take());
}

std::string FormatJson(const Report& report) {
  const StepSummary& s = report.step;
  const commsched_engine_info_t& engine = report.engine;
  const commsched_prediction_t& bound = report.bound;
  nlohmann::ordered_json exposed_by;
  for (const auto& [name, ns] : kCauses) {
    exposed_by[absl::StrCat(name, "_s")] = SecondsOf(s.blame.*ns);
  }
  const nlohmann::ordered_json json = {
      {"ranks", report.options.ranks},
      {"zero", report.options.zero},
      {"model", report.options.model},
      {"schedule", report.options.serial ? "serial" : "overlap"},
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
      {"exposed_mean_s", SecondsOf(s.blame.exposed_ns)},
      {"exposed_by", exposed_by},
      {"overlap_pct", s.overlap_pct},
      {"launches_per_step", s.launches},
      {"collectives_per_step", s.collectives},
      {"peak_bytes_in_flight", report.peak_bytes_in_flight},
      {"cap_bytes", report.options.cap_bytes},
      {"peak_bytes_per_rank", report.peak_bytes_per_rank()},
      {"process_peak_bytes", report.process_peak_bytes},
      {"ranks_per_process", report.ranks_per_process},
      {"save_bytes", report.save_bytes},
      {"parameter_bytes", engine.parameter_bytes},
      {"gradient_bytes", engine.gradient_bytes},
      {"optimizer_bytes", engine.optimizer_bytes},
      {"arena_bytes", engine.arena_bytes},
      {"peak_live_bytes", report.peak_live_bytes},
      {"micro_batches", report.options.micro_batches},
      {"accumulated_bytes", engine.accumulated_bytes},
      {"peak_model_state_bytes", engine.state_bytes},
      {"due_model_state_bytes", engine.due_bytes},
      {"activation_bytes", report.activation_bytes},
      {"num_parameters", engine.num_parameters},
      {"num_buckets", engine.num_buckets},
      {"given_buckets", engine.given_buckets},
      {"given_step_s", SecondsOf(engine.given_step_ns)},
      {"chosen_step_s", SecondsOf(engine.step_ns)},
      {"lower_bound_s", SecondsOf(bound.lower_bound_ns)},
      {"bound_compute_s", SecondsOf(bound.bound_compute_ns)},
      {"bound_link_s", SecondsOf(bound.bound_link_ns)},
      {"bound_cycle_s", SecondsOf(bound.bound_cycle_ns)},
      {"bound_phases_s", SecondsOf(bound.bound_phases_ns)},
      {"predicted_step_s", SecondsOf(bound.step_ns)},
      {"ratio_to_lower_bound", report.ratio_to_lower_bound()},
      {"offloaded_bytes", engine.offloaded_bytes},
      {"staging_bytes", engine.staging_bytes},
      {"offloaded_gradient_bytes", engine.offloaded_gradient_bytes},
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

#include "trace/prometheus.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "trace/metrics.h"
#include "trace/trace_file.h"

namespace commsched {
namespace {

std::string Escaped(absl::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string Number(double value) {
  // Counts and bytes exactly, up to 2^53; the rest as short as it gets.
  if (std::fabs(value) < 0x1p53 && value == std::floor(value)) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  return absl::StrCat(value);
}

// From 10 us to 10 s.
std::vector<double> SecondEdges() {
  return {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1, 3, 10};
}

std::vector<double> MemberEdges() { return {1, 2, 4, 8, 16, 32, 64, 128, 256}; }

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// What one kind of collective on one axis did.
struct OfKind {
  Histogram seconds{SecondEdges()};
  Histogram members{MemberEdges()};
  uint64_t bytes = 0;
};

class TraceMetrics {
 public:
  explicit TraceMetrics(const Recorder& recorder)
      : names_(recorder.names()),
        steps_(ComputeStepMetrics(recorder)),
        rank_(absl::StrCat(names_.rank)) {
    for (const Record& record : RecordsFromFirstStep(recorder)) Add(record);
  }

  std::string Text() {
    WriteSteps();
    WriteKinds();
    writer_.Family("commsched_task_wait_seconds", "histogram",
                   "Host time blocked before a compute op.");
    waits_.Write({{"rank", rank_}}, &writer_);
    return writer_.text();
  }

 private:
  void Add(const Record& record) {
    const double seconds = Seconds(record.end_ns - record.begin_ns);
    if (record.kind == RecordKind::kWait) waits_.Add(seconds);
    if (record.kind != RecordKind::kLaunch) return;
    if (record.index >= names_.launches.size()) return;
    const RecordNames::LaunchName& launch = names_.launches[record.index];
    OfKind& kind = kinds_[{launch.collective, launch.axis}];
    kind.seconds.Add(seconds);
    kind.members.Add(launch.num_members);
    kind.bytes += launch.bytes;
  }

  void Gauge(absl::string_view name, absl::string_view help, double value) {
    writer_.Family(name, "gauge", help);
    writer_.Sample({{"rank", rank_}}, value);
  }

  void WriteSteps() {
    int64_t step_ns = 0;
    int64_t compute_ns = 0;
    int64_t comm_ns = 0;
    int64_t exposed_ns = 0;
    for (const StepMetrics& step : steps_) {
      step_ns += step.step_ns;
      compute_ns += step.compute_ns;
      comm_ns += step.comm_ns;
      exposed_ns += step.exposed_ns;
    }
    Gauge("commsched_trace_steps", "Complete steps that the trace holds.",
          static_cast<double>(steps_.size()));
    Gauge("commsched_step_seconds", "Time of these steps.", Seconds(step_ns));
    Gauge("commsched_compute_seconds", "Time with compute in these steps.",
          Seconds(compute_ns));
    Gauge("commsched_comm_seconds", "Time with communication in these steps.",
          Seconds(comm_ns));
    Gauge("commsched_exposed_comm_seconds",
          "Time with communication and no compute in these steps.",
          Seconds(exposed_ns));
    if (comm_ns == 0) return;
    Gauge("commsched_overlap_ratio", "Part of communication under compute.",
          1 - static_cast<double>(exposed_ns) / static_cast<double>(comm_ns));
  }

  void WriteKinds() {
    writer_.Family("commsched_collective_seconds", "histogram",
                   "Time of a launch, from its waits met to complete.");
    ForEachKind([&](const auto& labels, const OfKind& kind) {
      kind.seconds.Write(labels, &writer_);
    });
    writer_.Family("commsched_batch_ops", "histogram",
                   "Collectives that a launch carries.");
    ForEachKind([&](const auto& labels, const OfKind& kind) {
      kind.members.Write(labels, &writer_);
    });
    writer_.Family("commsched_collective_bytes", "gauge",
                   "Bytes of the launches that the trace holds.");
    ForEachKind([&](const auto& labels, const OfKind& kind) {
      writer_.Sample(labels, static_cast<double>(kind.bytes));
    });
  }

  template <typename Visitor>
  void ForEachKind(Visitor visit) const {
    for (const auto& [key, kind] : kinds_) {
      const PrometheusWriter::Labels labels = {
          {"rank", rank_}, {"op", key.first}, {"axis", key.second}};
      visit(labels, kind);
    }
  }

  const RecordNames& names_;
  const std::vector<StepMetrics> steps_;
  const std::string rank_;
  std::map<std::pair<std::string, std::string>, OfKind> kinds_;
  Histogram waits_{SecondEdges()};
  PrometheusWriter writer_;
};

}  // namespace

void PrometheusWriter::Family(absl::string_view name, absl::string_view type,
                              absl::string_view help) {
  name_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ",
                  type, "\n");
}

void PrometheusWriter::Sample(const Labels& labels, double value,
                              absl::string_view suffix) {
  absl::StrAppend(&text_, name_, suffix);
  const char* separator = "{";
  for (const auto& [label, text] : labels) {
    absl::StrAppend(&text_, separator, label, "=\"", Escaped(text), "\"");
    separator = ",";
  }
  if (!labels.empty()) absl::StrAppend(&text_, "}");
  absl::StrAppend(&text_, " ", Number(value), "\n");
}

void Histogram::Add(double value) {
  const auto edge = std::lower_bound(edges_.begin(), edges_.end(), value);
  ++counts_[static_cast<size_t>(edge - edges_.begin())];
  sum_ += value;
}

void Histogram::Write(const PrometheusWriter::Labels& labels,
                      PrometheusWriter* writer) const {
  PrometheusWriter::Labels with_edge = labels;
  with_edge.emplace_back("le", "");
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    with_edge.back().second =
        i < edges_.size() ? absl::StrCat(edges_[i]) : "+Inf";
    writer->Sample(with_edge, static_cast<double>(below), "_bucket");
  }
  writer->Sample(labels, sum_, "_sum");
  writer->Sample(labels, static_cast<double>(below), "_count");
}

std::string TraceMetricsText(const Recorder& recorder) {
  return TraceMetrics(recorder).Text();
}

absl::Status WriteTraceMetrics(const Recorder& recorder,
                               absl::string_view path) {
  return WriteTraceFile(
      path, recorder.names().rank,
      [&](TraceSink sink) { sink(TraceMetricsText(recorder)); }, "metrics");
}

}  // namespace commsched

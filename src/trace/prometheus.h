// Metrics in the text format that Prometheus scrapes.
#ifndef COMMSCHED_SRC_TRACE_PROMETHEUS_H_
#define COMMSCHED_SRC_TRACE_PROMETHEUS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trace/recorder.h"

namespace commsched {

// Builds the text family by family. Names and help are the caller's, label
// values are escaped.
//
// Thread-compatible.
class PrometheusWriter {
 public:
  using Labels = std::vector<std::pair<absl::string_view, std::string>>;

  // Begins a family; `type` is "counter", "gauge" or "histogram".
  void Family(absl::string_view name, absl::string_view type,
              absl::string_view help);
  // One sample of the family, its name with `suffix`.
  void Sample(const Labels& labels, double value,
              absl::string_view suffix = "");

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string name_;
};

// Counts values into buckets with fixed upper edges, rising.
class Histogram {
 public:
  explicit Histogram(std::vector<double> edges)
      : edges_(std::move(edges)), counts_(edges_.size() + 1) {}

  void Add(double value);
  // The samples of a histogram family: cumulative buckets, sum and count.
  void Write(const PrometheusWriter::Labels& labels,
             PrometheusWriter* writer) const;

 private:
  const std::vector<double> edges_;
  std::vector<uint64_t> counts_;  // the last is above all edges
  double sum_ = 0;
};

// What the complete steps held say (docs/trace_formats.md lists the metrics).
std::string TraceMetricsText(const Recorder& recorder);

// For node-exporter's textfile collector. kUnavailable if the file cannot be
// written; never leaves half a file.
absl::Status WriteTraceMetrics(const Recorder& recorder,
                               absl::string_view path);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_PROMETHEUS_H_

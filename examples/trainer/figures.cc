#include "examples/trainer/figures.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "examples/trainer/job.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

class Writer {
 public:
  template <typename T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    (*this)(uint64_t{values.size()});
    for (const T& value : values) (*this)(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  template <typename T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    good_ = good_ && rest_.size() >= sizeof(value);
    if (!good_) return;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    uint64_t count = 0;
    (*this)(count);
    good_ = good_ && count <= rest_.size() / sizeof(T);
    if (!good_) return;
    values.resize(count);
    for (T& value : values) (*this)(value);
  }
  bool AtEnd() const { return good_ && rest_.empty(); }

 private:
  absl::string_view rest_;
  bool good_ = true;
};

template <typename Figures, typename Visitor>
void Visit(Figures& figures, Visitor& visit) {
  visit(figures.last_loss);
  visit(figures.peak_bytes_in_flight);
  visit(figures.peak_live_bytes);
  visit(figures.copy_ns);
  visit(figures.copy_exposed_ns);
  visit(figures.process_peak_bytes);
  visit(figures.save_bytes);
  visit(figures.steps);
  visit(figures.op_costs_ns);
  visit(figures.stalls);
}

}  // namespace

std::string EncodeFigures(const RankFigures& figures) {
  Writer writer;
  Visit(figures, writer);
  return writer.Take();
}

absl::StatusOr<RankFigures> DecodeFigures(absl::string_view bytes) {
  RankFigures figures;
  Reader reader(bytes);
  Visit(figures, reader);
  if (reader.AtEnd()) return figures;
  return absl::DataLossError("these are not the figures of a rank");
}

absl::StatusOr<RankFigures> FiguresOf(Rank& rank, double last_loss,
                                      const RankSaver* saver) {
  RankFigures figures;
  figures.last_loss = last_loss;
  absl::StatusOr<std::vector<StepRecord>> steps = rank.StepRecords();
  if (!steps.ok()) return steps.status();
  figures.steps = *std::move(steps);
  const absl::StatusOr<uint64_t> peak = rank.PeakBytesInFlight();
  if (!peak.ok()) return peak.status();
  figures.peak_bytes_in_flight = *peak;
  figures.peak_live_bytes = rank.PeakLiveBytes();
  const auto info = rank.Info();
  if (!info.ok()) return info.status();
  figures.copy_ns = info->copy_ns;
  figures.copy_exposed_ns = info->copy_exposed_ns;
  absl::StatusOr<std::vector<int64_t>> costs = rank.OpCostsNs();
  if (!costs.ok()) return costs.status();
  figures.op_costs_ns = *std::move(costs);
  if (saver != nullptr) figures.stalls = saver->stalls();
  return figures;
}

void FillMemory(const std::vector<RankFigures>& ranks, Report* report) {
  for (const RankFigures& rank : ranks) {
    if (rank.process_peak_bytes <= report->process_peak_bytes) continue;
    report->process_peak_bytes = rank.process_peak_bytes;
    report->save_bytes = rank.save_bytes;
  }
}

void FillCopies(const std::vector<RankFigures>& ranks, double steps,
                Report* report) {
  for (const RankFigures& rank : ranks) {
    report->copy_s = std::max(report->copy_s,
                              static_cast<double>(rank.copy_ns) * 1e-9 / steps);
    report->copy_exposed_s =
        std::max(report->copy_exposed_s,
                 static_cast<double>(rank.copy_exposed_ns) * 1e-9 / steps);
  }
}

absl::Status FillBound(const std::vector<RankFigures>& ranks,
                       const Options& options, Rank* rank, Report* report) {
  std::vector<int64_t> costs;
  for (const RankFigures& one : ranks) {
    costs.resize(one.op_costs_ns.size());
    for (size_t op = 0; op < costs.size(); ++op) {
      costs[op] += one.op_costs_ns[op] / options.ranks;
    }
  }
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  // Without emulation the links are memory: their cost is the CPU time of the
  // copies. Of a launch, only what was measured counts.
  const absl::StatusOr<bool> known =
      SetLinks(options, rank->context(), &profile);
  if (!known.ok()) return known.status();
  if (!*known) profile.link_bytes_per_s = 1e18;
  profile.launch_ns = 1;
  SetCores(options, rank->context(), &profile);
  profile.op_cost_ns = costs.data();
  profile.num_ops = costs.size();
  const absl::StatusOr<commsched_prediction_t> prediction =
      rank->Predict(profile);
  if (!prediction.ok()) return prediction.status();
  report->bound.predicted_s = static_cast<double>(prediction->step_ns) * 1e-9;
  report->bound.total_s =
      static_cast<double>(prediction->lower_bound_ns) * 1e-9;
  report->bound.compute_s =
      static_cast<double>(prediction->bound_compute_ns) * 1e-9;
  report->bound.link_s = static_cast<double>(prediction->bound_link_ns) * 1e-9;
  report->bound.cycle_s =
      static_cast<double>(prediction->bound_cycle_ns) * 1e-9;
  report->bound.phases_s =
      static_cast<double>(prediction->bound_phases_ns) * 1e-9;
  return absl::OkStatus();
}

}  // namespace commsched::trainer

#include "examples/trainer/figures.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "examples/trainer/job.h"

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

absl::StatusOr<RankFigures> FiguresOf(const Rank& rank, double last_loss,
                                      const RankSaver* saver) {
  RankFigures figures;
  figures.last_loss = last_loss;
  TRAINER_ASSIGN_OR_RETURN(figures.steps, rank.StepRecords());
  TRAINER_ASSIGN_OR_RETURN(const commsched_session_counters_t counters,
                           rank.Counters());
  figures.peak_bytes_in_flight = counters.peak_bytes_in_flight;
  figures.peak_live_bytes = rank.PeakLiveBytes();
  TRAINER_ASSIGN_OR_RETURN(const commsched_engine_info_t info, rank.Info());
  figures.copy_ns = info.copy_ns;
  figures.copy_exposed_ns = info.copy_exposed_ns;
  TRAINER_ASSIGN_OR_RETURN(figures.op_costs_ns, rank.OpCostsNs());
  if (saver != nullptr) figures.stalls = saver->stalls();
  return figures;
}

void FillFigures(const std::vector<RankFigures>& ranks, int64_t steps,
                 Report* report) {
  const auto keep_most = [](auto value, auto* most) {
    *most = std::max(*most, value);
  };
  const auto per_step = [steps](int64_t ns) {
    return SecondsOf(ns) / static_cast<double>(steps);
  };
  std::vector<std::vector<RankSaver::Stall>> stalls;
  for (const RankFigures& rank : ranks) {
    report->loss += rank.last_loss / static_cast<double>(ranks.size());
    keep_most(rank.peak_bytes_in_flight, &report->peak_bytes_in_flight);
    keep_most(rank.peak_live_bytes, &report->peak_live_bytes);
    keep_most(per_step(rank.copy_ns), &report->copy_s);
    keep_most(per_step(rank.copy_exposed_ns), &report->copy_exposed_s);
    if (rank.process_peak_bytes > report->process_peak_bytes) {
      report->process_peak_bytes = rank.process_peak_bytes;
      report->save_bytes = rank.save_bytes;
    }
    stalls.push_back(rank.stalls);
  }
  report->num_saves = static_cast<int64_t>(stalls[0].size());
  const RankSaver::Stall stall = SummarizeStalls(stalls);
  report->save_copy_s = stall.copy_s;
  report->save_wait_s = stall.wait_s;
}

absl::Status FillBound(const std::vector<RankFigures>& ranks,
                       const Options& options, const Rank& rank,
                       Report* report) {
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
  TRAINER_ASSIGN_OR_RETURN(const bool known,
                           SetLinks(options, rank.context(), &profile));
  if (!known) profile.link_bytes_per_s = 1e18;
  profile.launch_ns = 1;
  SetCores(options, rank.context(), &profile);
  profile.op_cost_ns = costs.data();
  profile.num_ops = costs.size();
  TRAINER_ASSIGN_OR_RETURN(report->bound, rank.Predict(profile));
  return absl::OkStatus();
}

}  // namespace commsched::trainer

#ifndef COMMSCHED_EXAMPLES_TRAINER_FIGURES_H_
#define COMMSCHED_EXAMPLES_TRAINER_FIGURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/options.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/report.h"

namespace commsched::trainer {

// What one rank has measured, for the report.
struct RankFigures {
  double last_loss = 0;
  uint64_t peak_bytes_in_flight = 0;
  uint64_t peak_live_bytes = 0;
  int64_t copy_ns = 0;
  int64_t copy_exposed_ns = 0;
  uint64_t process_peak_bytes = 0;  // Both: of its process, with its ranks.
  uint64_t save_bytes = 0;
  std::vector<StepRecord> steps;
  std::vector<int64_t> op_costs_ns;
  std::vector<RankSaver::Stall> stalls;
};

// As bytes, between processes of one build, and back. kDataLoss if `bytes` are
// not such figures.
std::string EncodeFigures(const RankFigures& figures);
absl::StatusOr<RankFigures> DecodeFigures(absl::string_view bytes);

// Of a rank of this process, after a drain; `saver` is null if it saves
// nothing.
absl::StatusOr<RankFigures> FiguresOf(const Rank& rank, double last_loss,
                                      const RankSaver* saver);

// What figures of all ranks say in the report: losses, peaks, stalls of saves,
// and copies per step of `steps`.
void FillFigures(const std::vector<RankFigures>& ranks, int64_t steps,
                 Report* report);
// The bound from measured costs, the mean over the ranks, of the plan that they
// have in common, that of `rank`.
absl::Status FillBound(const std::vector<RankFigures>& ranks,
                       const Options& options, const Rank& rank,
                       Report* report);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_FIGURES_H_

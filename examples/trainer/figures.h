#ifndef COMMSCHED_EXAMPLES_TRAINER_FIGURES_H_
#define COMMSCHED_EXAMPLES_TRAINER_FIGURES_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/options.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/report.h"

namespace commsched::trainer {

// The plan of a rank as text: the schedule; and how often each bucket travels
// in a step, and what of it is exposed.
absl::StatusOr<std::string> ExplainPlan(const Rank& rank);
absl::StatusOr<std::string> DescribePlan(const Rank& rank,
                                         const Options& options);

// What one rank has measured, for the report.
struct RankFigures {
  struct Totals {
    double last_loss = 0;
    uint64_t peak_bytes_in_flight = 0;
    uint64_t peak_live_bytes = 0;
    int64_t copy_ns = 0;
    int64_t copy_exposed_ns = 0;
    uint64_t process_peak_bytes = 0;  // Both: of its process, with its ranks.
    uint64_t save_bytes = 0;
  };
  Totals totals;
  std::vector<StepRecord> steps;
  std::vector<int64_t> op_costs_ns;
  std::vector<RankSaver::Stall> stalls;
};

// Of a rank of this process, after a drain; `saver` is null if it saves
// nothing. `totals` has the loss and what its process took.
absl::StatusOr<RankFigures> FiguresOf(const Rank& rank, const RankSaver* saver,
                                      const RankFigures::Totals& totals);

// Those of all ranks, by rank. Collective, among processes.
absl::StatusOr<std::vector<RankFigures>> GatherFigures(
    commsched_context_t* context, const RankFigures& mine,
    std::chrono::nanoseconds timeout);

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

#ifndef COMMSCHED_EXAMPLES_TRAINER_REPORT_H_
#define COMMSCHED_EXAMPLES_TRAINER_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "commsched/plan.h"
#include "commsched/trace.h"
#include "examples/trainer/options.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {

// One complete step of one rank, as its trace has it.
struct StepRecord {
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  commsched_blame_t blame = commsched_blame_init();
};

// The median over steps of each figure of the step's worst rank: the one whose
// step took longest.
struct StepSummary {
  int64_t steps = 0;  // That were used.
  double step_s = 0;
  double compute_s = 0;
  double comm_s = 0;
  double exposed_s = 0;
  double overlap_pct = 0;  // 100 (1 - exposed / comm); 0 without comm.
  // The mean, so that it adds up to the mean exposed: docs/blame.md.
  commsched_blame_t blame = commsched_blame_init();
  double launches = 0;
  double collectives = 0;
};

// `ranks` holds the records of each rank. Steps that not every rank has, steps
// in `excluded`, which ascends, and those before `first_step` are left out; if
// nothing is left, those before `first_step` count after all.
StepSummary Summarize(const std::vector<std::vector<StepRecord>>& ranks,
                      uint64_t first_step,
                      const std::vector<uint64_t>& excluded);

// What a run ends with.
struct Report {
  Options options;
  int64_t steps = 0;
  int end_signal = 0;      // With which it was ended early, before --steps.
  int64_t first_step = 0;  // After those of the checkpoint.
  double loss = 0;      // Of the last step, nats per byte, mean over the batch.
  double val_loss = 0;  // After the last step.
  double tokens_per_s = 0;
  StepSummary step;
  // No step can be faster than its bounds with these buckets; and what this
  // plan is predicted to take. Both from the costs that were measured.
  commsched_prediction_t bound = commsched_prediction_init();
  uint64_t peak_bytes_in_flight = 0;  // Most of any rank and step.
  // Of rank 0, as all others are: layout, memory, and buckets before they were
  // merged or cut.
  commsched_engine_info_t engine = commsched_engine_info_init();
  uint64_t activation_bytes = 0;  // Per rank.
  // What the system has seen: the most that was resident of a process, with its
  // ranks and all that they do not account for; and how much of it saves took.
  uint64_t process_peak_bytes = 0;  // 0: not known.
  uint64_t save_bytes = 0;
  int64_t ranks_per_process = 1;
  uint64_t peak_live_bytes = 0;  // Seen, most of any rank; part of the arena.
  // Of a step's copies to and from the pool, mean over steps of the slowest
  // rank; and which it waited for.
  double copy_s = 0;
  double copy_exposed_s = 0;
  double loss_scale = 1;  // After the last step.
  uint64_t skipped_steps = 0;
  int64_t num_saves = 0;
  double save_copy_s = 0;  // Both: what a save held a step up for, median over
  double save_wait_s = 0;  // saves of the slowest rank; for the one before.
  std::string plan_fingerprint;
  std::string weights_sha256;

  uint64_t peak_bytes_per_rank() const {
    return engine.state_bytes + activation_bytes;
  }
  double ratio_to_lower_bound() const {
    return bound.lower_bound_ns > 0
               ? step.step_s / SecondsOf(bound.lower_bound_ns)
               : 0;
  }
};

// The table for people; several lines.
std::string FormatTable(const Report& report);

// One JSON object on one line, without a newline.
std::string FormatJson(const Report& report);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_REPORT_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_REPORT_H_
#define COMMSCHED_EXAMPLES_TRAINER_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace commsched::trainer {

// What exposed communication is owed to: docs/blame.md.
struct BlameRecord {
  double cap_s = 0;
  double dependency_s = 0;
  double order_s = 0;
  double link_s = 0;
  double straggler_s = 0;

  double total_s() const {
    return cap_s + dependency_s + order_s + link_s + straggler_s;
  }
};

// One complete step of one rank, as its trace has it.
struct StepRecord {
  uint64_t step = 0;
  double step_s = 0;     // From its begin to the next one's.
  double compute_s = 0;  // Union of the compute intervals.
  double comm_s = 0;     // Union of the communication intervals.
  double exposed_s = 0;  // Communication while no compute ran.
  BlameRecord blame;     // Adds up to it.
  double launches = 0;
  double collectives = 0;
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
  BlameRecord blame;       // The mean, so that it adds up to the mean exposed.
  double launches = 0;
  double collectives = 0;
};

// `ranks` holds the records of each rank. Steps that not every rank has, steps
// in `excluded`, which ascends, and those before `first_step` are left out; if
// nothing is left, those before `first_step` count after all.
StepSummary Summarize(const std::vector<std::vector<StepRecord>>& ranks,
                      uint64_t first_step,
                      const std::vector<uint64_t>& excluded);

// No step can be faster than this with these buckets, and why.
struct LowerBound {
  double total_s = 0;
  double compute_s = 0;  // CPU time of all ranks / cores.
  double link_s = 0;     // Busy time of one direction of a link.
  double cycle_s = 0;    // Longest chain of dependencies.
  double phases_s = 0;   // Sum over the phases between barriers.

  // What this plan is predicted to take on these costs.
  double predicted_s = 0;
};

// What a run ends with.
struct Report {
  int64_t ranks = 0;
  int64_t zero = 0;
  std::string model;
  std::string schedule;
  int64_t steps = 0;
  int end_signal = 0;      // With which it was ended early, before --steps.
  int64_t first_step = 0;  // After those of the checkpoint.
  int64_t micro_batches = 1;
  double loss = 0;      // Of the last step, nats per byte, mean over the batch.
  double val_loss = 0;  // After the last step.
  double tokens_per_s = 0;
  StepSummary step;
  LowerBound bound;
  uint64_t peak_bytes_in_flight = 0;  // Most of any rank and step.
  uint64_t cap_bytes = 0;             // 0: none.
  uint64_t parameter_bytes = 0;       // These seven: per rank.
  uint64_t gradient_bytes = 0;
  uint64_t optimizer_bytes = 0;
  uint64_t arena_bytes = 0;        // Part of gradient_bytes below ZeRO-3.
  uint64_t accumulated_bytes = 0;  // Part of gradient_bytes or arena_bytes.
  uint64_t state_bytes = 0;        // All of these: the peak of model state.
  uint64_t due_bytes = 0;          // What the stage comes to by definition.
  uint64_t activation_bytes = 0;
  // What the system has seen: the most that was resident of a process, with its
  // ranks and all that they do not account for; and how much of it saves took.
  uint64_t process_peak_bytes = 0;  // 0: not known.
  uint64_t save_bytes = 0;
  int64_t ranks_per_process = 1;
  uint64_t peak_live_bytes = 0;  // Seen, most of any rank; part of the arena.
  uint64_t num_parameters = 0;
  uint64_t num_buckets = 0;
  uint64_t given_buckets = 0;    // Before they were merged or cut; 0: not.
  double given_step_s = 0;       // Both predicted: with those, and with what
  double chosen_step_s = 0;      // was chosen, before any op was measured.
  uint64_t offloaded_bytes = 0;  // Per rank, in a file.
  uint64_t staging_bytes = 0;    // Part of optimizer_bytes.
  double copy_s = 0;  // Both: of a step's copies of that, mean over steps of
  double copy_exposed_s = 0;  // the slowest rank; for which it had to wait.
  double loss_scale = 1;      // After the last step.
  uint64_t skipped_steps = 0;
  int64_t num_saves = 0;
  double save_copy_s = 0;  // Both: what a save held a step up for, median over
  double save_wait_s = 0;  // saves of the slowest rank; for the one before.
  std::string plan_fingerprint;
  std::string weights_sha256;

  uint64_t peak_bytes_per_rank() const {
    return state_bytes + activation_bytes;
  }
  double ratio_to_lower_bound() const {
    return bound.total_s > 0 ? step.step_s / bound.total_s : 0;
  }
};

// The table for people; several lines.
std::string FormatTable(const Report& report);

// One JSON object on one line, without a newline.
std::string FormatJson(const Report& report);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_REPORT_H_

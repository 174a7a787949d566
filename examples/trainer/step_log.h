#ifndef COMMSCHED_EXAMPLES_TRAINER_STEP_LOG_H_
#define COMMSCHED_EXAMPLES_TRAINER_STEP_LOG_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/commsched.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/tally.h"

namespace commsched::trainer {

// What one rank tells of a step that it has taken.
struct StepEntry {
  int64_t step = 0;
  double loss = 0;  // Mean of its sequences, nats per byte.
  double lr = 0;
  std::optional<double> norm;  // None is computed, or not yet.
  double step_s = 0;
  // None where the trace does not hold a whole step.
  std::optional<double> exposed_s;
  std::optional<uint64_t> peak_bytes_in_flight;
};

// Where ranks tell of their steps: each rank, steps in order, every step once.
using StepSink = std::function<void(int64_t rank, const StepEntry& entry)>;

// A file of comma-separated values with a row per step, each on the disk's way
// as soon as all ranks have told of the step.
//
// A rank that tells waits for at most one write of another; a row is about a
// hundred bytes, and a step has some thousands of calls.
//
// Thread-safe.
class StepLog {
 public:
  // Of `ranks` ranks whose step is of `tokens` tokens in all. Opens the file at
  // `path` and leaves what it holds; kUnavailable if it cannot be written.
  static absl::StatusOr<std::unique_ptr<StepLog>> Create(
      const std::string& path, int64_t ranks, int64_t tokens);

  // Once nothing refuses the run, before the first Add(): keeps the rows of the
  // first `first_step` steps and removes those after them, which this run
  // writes again; 0: replaces the file.
  absl::Status Begin(int64_t first_step);

  // The row has the mean loss, and times and bytes of the rank whose step took
  // longest.
  void Add(int64_t rank, const StepEntry& entry);

  // The first failure to write. Rows after it are left out.
  absl::Status Close();

 private:
  StepLog(std::string path, std::FILE* file, int64_t ranks, int64_t tokens)
      : path_(std::move(path)),
        tokens_(tokens),
        file_(file, std::fclose),
        tally_(ranks) {}
  absl::Status WriteHeader();
  void WriteLocked(const std::vector<StepEntry>& ranks);
  // Notes errno as the first failure, unless it is `good`.
  void NoteLocked(bool good);

  const std::string path_;
  const int64_t tokens_;

  std::mutex mutex_;                                      // Guards the rest.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;  // Null once closed.
  Tally<StepEntry> tally_;
  absl::Status failure_;
};

// What one rank tells the log of its steps: of each when the next one is over,
// since its launches may run on under that one.
//
// Thread-compatible: the rank's thread.
class RankLog {
 public:
  // `log`, unless it is null, gets the steps of `rank`, the `index`-th, which
  // outlives this. `first_step` is the step that its trace calls 0.
  RankLog(StepSink log, const Rank& rank, int64_t index, int64_t first_step)
      : log_(std::move(log)),
        rank_(rank),
        index_(index),
        first_step_(first_step) {}

  // Around a step.
  void Begin();
  absl::Status End(int64_t step, double loss);

  // After a drain: of the last step, too.
  absl::Status Finish();

 private:
  const StepSink log_;
  const Rank& rank_;
  const int64_t index_;
  const int64_t first_step_;
  std::chrono::steady_clock::time_point begun_;
  std::optional<StepEntry> last_;  // That the log has not been told of.
};

// What the ranks of a job of processes tell of their steps, brought to the log
// of rank 0 by a thread of its own, so that no rank waits for another.
//
// Thread-safe.
class GatheredLog {
 public:
  // `context`, and `log` of rank 0, else null, outlive this.
  GatheredLog(commsched_context_t* context, StepLog* log)
      : context_(context), log_(log), thread_([this] { Run(); }) {}
  // Ends what Finish() has not; after a failure it may wait for the other ranks
  // to end, too.
  ~GatheredLog() { Finish(); }
  GatheredLog(const GatheredLog&) = delete;
  GatheredLog& operator=(const GatheredLog&) = delete;

  void Add(const StepEntry& entry);

  // Blocks until all that this rank has told has arrived, or cannot any more.
  void Finish();

 private:
  void Run();

  commsched_context_t* const context_;
  StepLog* const log_;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::deque<StepEntry> told_;
  bool ends_ = false;

  std::thread thread_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_STEP_LOG_H_

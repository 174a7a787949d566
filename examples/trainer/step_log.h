#ifndef COMMSCHED_EXAMPLES_TRAINER_STEP_LOG_H_
#define COMMSCHED_EXAMPLES_TRAINER_STEP_LOG_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace commsched::trainer {

// What one rank tells of a step that it has taken.
struct StepEntry {
  double loss = 0;  // Mean of its sequences, nats per byte.
  double lr = 0;
  std::optional<double> norm;  // None is computed, or not yet.
  double step_s = 0;
  // None where the trace does not hold a whole step.
  std::optional<double> exposed_s;
  std::optional<uint64_t> peak_bytes_in_flight;
};

// Where ranks tell of their steps.
class StepSink {
 public:
  virtual ~StepSink() = default;
  // Each rank, steps in order, every step once.
  virtual void Add(int64_t rank, int64_t step, const StepEntry& entry) = 0;
};

// A file of comma-separated values with a row per step, each on the disk's way
// as soon as all ranks have told of the step.
//
// A rank that tells waits for at most one write of another; a row is about a
// hundred bytes, and a step has some thousands of calls.
//
// Thread-safe.
class StepLog final : public StepSink {
 public:
  using Entry = StepEntry;

  // Of `ranks` ranks whose step is of `tokens` tokens in all. Opens the file at
  // `path` and leaves what it holds; kUnavailable if it cannot be written.
  static absl::StatusOr<std::unique_ptr<StepLog>> Create(
      const std::string& path, int64_t ranks, int64_t tokens);

  ~StepLog() override;
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Once nothing refuses the run, before the first Add(): keeps the rows of the
  // first `first_step` steps and removes those after them, which this run
  // writes again; 0: replaces the file.
  absl::Status Begin(int64_t first_step);

  // The row has the mean loss, and times and bytes of the rank whose step took
  // longest.
  void Add(int64_t rank, int64_t step, const Entry& entry) override;

  // The first failure to write. Rows after it are left out.
  absl::Status Close();

 private:
  struct Row {
    int64_t entries = 0;
    std::vector<double> losses;  // By rank: added up in one order.
    Entry slowest;
  };

  StepLog(std::string path, std::FILE* file, int64_t ranks, int64_t tokens)
      : path_(std::move(path)), ranks_(ranks), tokens_(tokens), file_(file) {}
  absl::Status WriteHeader();
  void WriteLocked(int64_t step, const Row& row);
  // Notes errno as the first failure.
  void FailLocked();

  const std::string path_;
  const int64_t ranks_;
  const int64_t tokens_;

  std::mutex mutex_;             // Guards the rest.
  std::FILE* file_;              // Null once closed.
  std::map<int64_t, Row> rows_;  // Of steps that some ranks have told of.
  absl::Status failure_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_STEP_LOG_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_TRAINING_H_
#define COMMSCHED_EXAMPLES_TRAINER_TRAINING_H_

#include <atomic>
#include <cstdio>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/trainer/data.h"
#include "examples/trainer/job.h"
#include "examples/trainer/options.h"
#include "examples/trainer/report.h"

namespace commsched::trainer {

// What a program gives a run. All may be null.
struct RunHooks {
  std::FILE* out = nullptr;  // Where to say what it does.

  // The ranks of the run, as many as the options say; null: threads, made for
  // it. Outlives the run.
  const Job* job = nullptr;

  // Is called with the failure of a rank as soon as there is one, on the
  // calling thread, before Train() returns it: a rank that does not end can
  // hold that up, and after 5 s, 60 s if it writes its checkpoint, the process
  // ends with exit code 1.
  std::function<void(const absl::Status&)> on_failure;

  // The model is built on a rank of this process, and with it on all; steps
  // follow. On the ranks' threads, by each of them.
  std::function<void()> on_built;

  // Not 0: end after the step at hand, as if it were the last. Of ranks that
  // are processes one that is asked is enough.
  const std::atomic<int>* end_early = nullptr;
};

// Trains as `options` say, each rank on a thread of its own, and returns what
// there is to report. Shows its progress on stderr if that is a terminal, and
// writes traces if asked to. Fails with the first failure of any rank. Of ranks
// that are processes each calls it, and gets the same report.
absl::StatusOr<Report> Train(const Options& options, const Dataset& dataset,
                             const RunHooks& hooks = {});

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_TRAINING_H_

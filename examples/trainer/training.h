#ifndef COMMSCHED_EXAMPLES_TRAINER_TRAINING_H_
#define COMMSCHED_EXAMPLES_TRAINER_TRAINING_H_

#include <cstdio>

#include "absl/status/statusor.h"
#include "examples/trainer/data.h"
#include "examples/trainer/options.h"
#include "examples/trainer/report.h"

namespace commsched::trainer {

// Trains as `options` say, each rank on a thread of its own, and returns what
// there is to report. Says what it does on `out`, unless that is null, shows
// its progress on stderr if that is a terminal, and writes traces if asked to.
// Fails with the first failure of any rank.
absl::StatusOr<Report> Train(const Options& options, const Dataset& dataset,
                             std::FILE* out);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_TRAINING_H_

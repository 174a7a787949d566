#ifndef COMMSCHED_EXAMPLES_TRAINER_OPTIONS_CHECK_H_
#define COMMSCHED_EXAMPLES_TRAINER_OPTIONS_CHECK_H_

#include "absl/status/status.h"
#include "examples/trainer/options.h"

namespace commsched::trainer {

// kInvalidArgument, naming the flag, its value and what is allowed.

// Numbers that go together.
absl::Status CheckNumbers(const Options& o);
// Flags that need, or exclude, each other: as they were given.
absl::Status CheckPairs(const Options& o);
// Before the training, whose weights could not be exported.
absl::Status CheckExport(const Options& o);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_OPTIONS_CHECK_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_OPTIONS_CHECK_H_
#define COMMSCHED_EXAMPLES_TRAINER_OPTIONS_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "examples/trainer/options.h"

namespace commsched::trainer {

// kInvalidArgument, naming the flag, its value and what is allowed.

absl::Status CheckRange(const char* flag, int64_t value, int64_t least,
                        int64_t most);
// Of what the engine takes as a float: what that would round to 0 would mean
// something else.
absl::Status CheckNumber(const char* flag, double value);

// Numbers that go together.
absl::Status CheckRanges(const Options& o);
// What files and folders need of each other.
absl::Status CheckFolders(const Options& o);
// Before the training, whose weights could not be exported.
absl::Status CheckExport(const Options& o);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_OPTIONS_CHECK_H_

#ifndef COMMSCHED_EXAMPLES_TRAINER_OUTPUT_PATHS_H_
#define COMMSCHED_EXAMPLES_TRAINER_OUTPUT_PATHS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace commsched::trainer {

// The first two look before a run whether it can write its results, whose work
// would otherwise be lost. All fail, naming the path, with kUnavailable.

// Makes the folder if there is none, and sees that files can be made in it.
absl::Status CheckFolder(absl::string_view flag, const std::string& path);

// Sees that `path` can be replaced by a file: that files can be made in its
// folder, which must be there, and that it names no folder or device.
absl::Status CheckFile(absl::string_view flag, const std::string& path);

// Writes `text` to a file, which has it whole or stays as it was.
absl::Status WriteWholeFile(const std::string& path, absl::string_view text);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_OUTPUT_PATHS_H_

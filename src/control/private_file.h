// Files that only their user can read and write.
#ifndef COMMSCHED_SRC_CONTROL_PRIVATE_FILE_H_
#define COMMSCHED_SRC_CONTROL_PRIVATE_FILE_H_

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace commsched {

// kUnavailable: "PATH: cannot WHAT: " and errno's reason.
absl::Status SystemFailure(const char* what, const std::string& path);

// kFailedPrecondition, naming `path`, that `info` is of, if anybody but this
// user may read or write it.
absl::Status CheckPrivate(const struct stat& info, const std::string& path);

// All of a small file that only this user can read. kNotFound if there is none.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_PRIVATE_FILE_H_

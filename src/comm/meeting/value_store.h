#ifndef COMMSCHED_SRC_COMM_MEETING_VALUE_STORE_H_
#define COMMSCHED_SRC_COMM_MEETING_VALUE_STORE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace commsched {

// Where the ranks of a world leave values for each other (commsched_oob_t).
//
// Thread-safe.
class ValueStore {
 public:
  virtual ~ValueStore() = default;
  // kAlreadyExists if `key` has a value.
  virtual absl::Status Put(const std::string& key,
                           const std::string& value) = 0;
  // Blocks until somebody has put it: kDeadlineExceeded after `timeout_ns`.
  virtual absl::StatusOr<std::string> Get(const std::string& key,
                                          int64_t timeout_ns) = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_VALUE_STORE_H_

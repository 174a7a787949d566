#ifndef COMMSCHED_SRC_SESSION_PROGRESS_AT_FAILURE_H_
#define COMMSCHED_SRC_SESSION_PROGRESS_AT_FAILURE_H_

#include <cstdint>
#include <vector>

namespace commsched {

// How far a failed session has come.
struct ProgressAtFailure {
  // Steps that have begun: the last of them is the failed one.
  uint64_t steps_begun = 0;
  // By LaunchId: steps in which the launch has completed.
  std::vector<uint64_t> completed;
  // By index in Plan::nodes: steps in which the work of the node may have run
  // without what it waits for. On workers' streams, which a failure sets free,
  // those in which it had its `before`; on the caller's none, 0.
  std::vector<uint64_t> unguarded;

  friend bool operator==(const ProgressAtFailure&,
                         const ProgressAtFailure&) = default;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_PROGRESS_AT_FAILURE_H_

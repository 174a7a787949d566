// Which buffers a failed session leaves with contents that nobody may use.
#ifndef COMMSCHED_SRC_SESSION_POISON_H_
#define COMMSCHED_SRC_SESSION_POISON_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/plan.h"

namespace commsched {

// How far a failed session has come.
struct ProgressAtFailure {
  // Steps that have begun: the last of them is the failed one.
  uint64_t steps_begun = 0;
  // Steps in which a launch has completed.
  std::function<uint64_t(LaunchId)> completed;
  // Steps in which the work of a node (index in Plan::nodes) may have run
  // without what it waits for: on workers' streams, which a failure sets free,
  // those in which it had its `before`; on the caller's none, 0.
  std::function<uint64_t(uint32_t)> unguarded;
};

// By BufferId: whether an op that would have written the buffer in the failed
// step, or in one before it that is not complete, did not get to, or wrote it
// from data that is poisoned itself. Errs on the side of poison: a later write
// does not heal a buffer.
std::vector<bool> PoisonedBuffers(const Plan& plan,
                                  const ProgressAtFailure& progress);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_POISON_H_

// Which buffers a failed session leaves with contents that nobody may use.
#ifndef COMMSCHED_SRC_SESSION_POISON_H_
#define COMMSCHED_SRC_SESSION_POISON_H_

#include <vector>

#include "plan/plan.h"
#include "session/progress_at_failure.h"

namespace commsched {

// By BufferId: whether an op that would have written the buffer in the failed
// step, or in one before it that is not complete, did not get to, or wrote it
// from data that is poisoned itself or that freed work has spoiled
// (freed_work.h). Errs on the side of poison: a later write does not heal a
// buffer.
std::vector<bool> PoisonedBuffers(const Plan& plan,
                                  const ProgressAtFailure& progress);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_POISON_H_

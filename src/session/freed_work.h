// Work that a failure sets free.
#ifndef COMMSCHED_SRC_SESSION_FREED_WORK_H_
#define COMMSCHED_SRC_SESSION_FREED_WORK_H_

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "session/progress_at_failure.h"

namespace commsched {

// A worker's stream holds work back until a launch is complete; once the
// session has failed nobody completes it, and the work goes on as it is (I7).
// Free is an op that the plan orders behind an incomplete launch. It may come
// before work of other streams that the plan has before it, by way of that
// launch: it may read what has not been written, and overwrite what others have
// yet to read.
//
// By OpId, for each of the steps `first` to the last that has begun: whether
// the op is free, or may read what a free one has overwritten. What it writes
// is not to be trusted then. Others are left out if they are known to be
// complete, as a complete launch is ordered behind them, or if streams and
// compute ops alone order them before the op that overwrites. Errs on the side
// of naming too many.
std::vector<std::vector<bool>> SpoiledByFreedWork(
    const Plan& plan, const ProgressAtFailure& progress, uint64_t first);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_FREED_WORK_H_

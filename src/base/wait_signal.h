#ifndef COMMSCHED_SRC_BASE_WAIT_SIGNAL_H_
#define COMMSCHED_SRC_BASE_WAIT_SIGNAL_H_

#include "absl/status/status.h"

namespace commsched {

// From here on `signal` makes a thread of ours log DescribeWaiters(), whatever
// the least severe level is. The handler itself only wakes that thread, which
// lives as long as the process. A child that was forked has no such thread:
// there the signal does what it does by default.
//
// kInvalidArgument: no such signal, or it cannot be caught;
// kFailedPrecondition: the process handles or ignores it; kResourceExhausted:
// no thread or descriptor. Thread-safe.
absl::Status PrintWaitersOn(int signal);

// PrintWaitersOn(SIGQUIT) if COMMSCHED_SIGQUIT says so; the first call decides.
void PrintWaitersIfAsked();

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_WAIT_SIGNAL_H_

// Threads that sleep most of the time and must not be kept waiting.
#ifndef COMMSCHED_SRC_BASE_PROMPT_THREAD_H_
#define COMMSCHED_SRC_BASE_PROMPT_THREAD_H_

#include "absl/types/span.h"

namespace commsched {

// Asks the kernel to run the calling thread as soon as it is woken, also where
// other threads compute on every core, and to end its timed waits on time.
//
// Without it a woken thread waits until whoever computes has used up its time
// slice, which is looked at by the tick: for up to 4 ms, in which a link does
// nothing. It gets no more of the CPU than before, only sooner and in smaller
// pieces, so it needs no privilege. Best effort: other policies than the
// default one are left alone, and before Linux 6.12 only timed waits gain.
void MakeThreadPrompt();

// The core that the calling thread runs on; negative where that is not known.
int CurrentCore();

// Moves the calling thread to the one with number `index` of the cores that it
// may run on and that are not in `taken`. Changes nothing if there are not as
// many, or if the thread is not prompt: others stay where their program wants
// them. The thread may run on the same cores as before.
//
// Where every core computes, the kernel leaves a woken thread on the one it was
// on last, be there another such thread or not.
void LeaveCores(absl::Span<const int> taken, int index);

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_PROMPT_THREAD_H_

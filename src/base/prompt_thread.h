// Threads that sleep most of the time and must not be kept waiting.
#ifndef COMMSCHED_SRC_BASE_PROMPT_THREAD_H_
#define COMMSCHED_SRC_BASE_PROMPT_THREAD_H_

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

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_PROMPT_THREAD_H_

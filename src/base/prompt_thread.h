// Threads that sleep most of the time and must not be kept waiting.
#ifndef COMMSCHED_SRC_BASE_PROMPT_THREAD_H_
#define COMMSCHED_SRC_BASE_PROMPT_THREAD_H_

#include <atomic>
#include <cstdint>

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

// Which cores prompt threads run one piece of work on, each a part of it.
//
// Where every core computes, the kernel leaves a woken thread on the one it was
// on last, be there another such thread or not. Two that meet work one after
// the other, and what is computed on their core is late by the work of both.
//
// Thread-safe, lock-free. Cores that are 64 apart are taken for one.
class CoreClaims {
 public:
  // No core is claimed. Not while others claim.
  void Clear() { claimed_.store(0, std::memory_order_relaxed); }

  // Claims the core that the calling thread runs on. If another thread has, a
  // prompt thread moves to one that nobody has claimed, if there is any among
  // those that it may run on; others stay where their program wants them. The
  // thread may run on the same cores as before.
  void Claim();

 private:
  bool ClaimCore(int core);

  std::atomic<uint64_t> claimed_{0};  // A bit for each core, modulo 64.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_PROMPT_THREAD_H_

// Puts one thread to sleep until another has news for it.
#ifndef COMMSCHED_SRC_BASE_PARKER_H_
#define COMMSCHED_SRC_BASE_PARKER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/mutex.h"

namespace commsched {

// A token that one owner thread consumes and any thread may leave.
//
// Unpark() leaves the token; Park() takes it, sleeping until there is one. So a
// wake-up between "is there work?" and "sleep" is never lost, and any number of
// Unpark() calls before a Park() count as one. What a thread wrote before
// Unpark() is visible to the owner after the Park() that took the token.
//
// Unpark() is a single atomic exchange while the owner is awake; only waking a
// parked owner takes a lock and a system call.
//
// Parks do not count as blocking (BlockingCounters): an idle lane is not a
// contended one, hence the bare std::mutex.
//
// Park functions: the owner thread only. Unpark(): any thread, and the parker
// must outlive the call.
class Parker {
 public:
  // How the owner sleeps and is woken instead, such as on a descriptor. A
  // wake() that comes before the sleep() that it is for ends that one, or the
  // next.
  struct Sleeper {
    void* user = nullptr;
    // Also returns at the deadline, and may for no reason.
    void (*sleep)(void* user, int64_t deadline_ns) = nullptr;
    void (*wake)(void* user) = nullptr;
  };

  Parker() = default;
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // Before anybody parks or unparks. `sleeper.user` outlives the parker.
  void SetSleeper(const Sleeper& sleeper) { sleeper_ = sleeper; }

  // Sleeps until there is a token and takes it.
  void Park() {
    while (!ParkUntil(kNoDeadlineNs)) {
    }
  }

  // The same, giving up when the monotonic clock (base/clock.h) reaches
  // `deadline_ns`. Returns whether a token was taken; a deadline in the past
  // takes one that is already there. With a sleeper it may give up earlier.
  bool ParkUntil(int64_t deadline_ns);

  // Leaves a token and wakes the owner if it is parked.
  void Unpark();

 private:
  enum State : uint32_t { kEmpty, kToken, kParked };

  // Takes the token if it is there. Pairs with the exchange in Unpark().
  bool TryTakeToken();
  // Sleeps once; false if the deadline has passed.
  bool SleepLocked(std::unique_lock<std::mutex>& lock, int64_t deadline_ns);
  void WakeOwner();

  Sleeper sleeper_;

  std::atomic<uint32_t> state_{kEmpty};

  // Only for the parked case: held by the owner from before it announces
  // kParked until it sleeps, so that the waker cannot signal in between.
  std::mutex mu_;
  std::condition_variable cv_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_PARKER_H_

// A lock whose holder can see whether others wait for it.
#ifndef COMMSCHED_SRC_COMM_TURN_H_
#define COMMSCHED_SRC_COMM_TURN_H_

#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "base/parker.h"

namespace commsched {

// While nobody waits, taking it is one compare-exchange and giving it one
// store. Only TakeBy() of a turn that is held, and the Give() that ends it, use
// a mutex and a condition variable. Those who wait get it in any order.
//
// Thread-safe. Not recursive.
class Turn {
 public:
  Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Takes the turn if it is free and nobody waits for it.
  bool TryTake() { return !IsWanted() && TakeIfFree(); }
  void Take() {
    if (!TryTake()) (void)TakeBy(kNoDeadlineNs);
  }
  // Waits for it; false if `deadline_ns` passes first. `holder` gets a token,
  // if there is one, when this caller begins to wait.
  bool TakeBy(int64_t deadline_ns, Parker* holder = nullptr);
  // Returns whether somebody waits for it, who is woken then.
  bool Give();

  // The calling thread, which has the turn, has it while it does other things.
  void Keep() { keeper_.store(ThisThread(), std::memory_order_relaxed); }
  // Whether the calling thread does, so that it would wait for itself.
  bool IsKeptHere() const {
    return keeper_.load(std::memory_order_relaxed) == ThisThread();
  }

  // Whether somebody waits in TakeBy().
  bool IsWanted() const {
    return num_waiting_.load(std::memory_order_seq_cst) != 0;
  }

  // Gives the turn, which its maker has, as it ends.
  class Given {
   public:
    explicit Given(Turn* turn) : turn_(*turn) {}
    ~Given() { (void)turn_.Give(); }
    Given(const Given&) = delete;
    Given& operator=(const Given&) = delete;

   private:
    Turn& turn_;
  };

 private:
  bool TakeIfFree() {
    bool expected = false;
    return is_taken_.compare_exchange_strong(expected, true,
                                             std::memory_order_seq_cst);
  }

  static const void* ThisThread() {
    static thread_local char here;
    return &here;
  }

  // Give() clears `is_taken_` and then looks who waits. A waiter announces
  // itself and then looks at `is_taken_`. So one of them sees the other.
  std::atomic<bool> is_taken_{false};
  std::atomic<int> num_waiting_{0};
  std::atomic<const void*> keeper_{nullptr};  // Null: it is not kept.

  Mutex mu_;  // Held from a waiter's look until it sleeps.
  CondVar given_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_TURN_H_

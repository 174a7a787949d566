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
  // Waits for it; false if `deadline_ns` passes first. `holder` gets a token,
  // if there is one, when this caller begins to wait.
  bool TakeBy(int64_t deadline_ns, Parker* holder = nullptr);
  // Returns whether somebody waits for it, who is woken then.
  bool Give();

  // Whether somebody waits in TakeBy().
  bool IsWanted() const {
    return num_waiting_.load(std::memory_order_seq_cst) != 0;
  }

  // Has the turn while it lives.
  class Held {
   public:
    explicit Held(Turn* turn) : turn_(*turn) {
      if (!turn_.TryTake()) (void)turn_.TakeBy(kNoDeadlineNs);
    }
    ~Held() { (void)turn_.Give(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Turn& turn_;
  };

 private:
  bool TakeIfFree() {
    bool expected = false;
    return is_taken_.compare_exchange_strong(expected, true,
                                             std::memory_order_seq_cst);
  }

  // Give() clears `is_taken_` and then looks who waits. A waiter announces
  // itself and then looks at `is_taken_`. So one of them sees the other.
  std::atomic<bool> is_taken_{false};
  std::atomic<int> num_waiting_{0};

  Mutex mu_;  // Held from a waiter's look until it sleeps.
  CondVar given_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_TURN_H_

// Whose turn it is to call a backend for a rank.
#ifndef COMMSCHED_SRC_COMM_RANK_TURN_H_
#define COMMSCHED_SRC_COMM_RANK_TURN_H_

#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "base/parker.h"

namespace commsched {

// A lock whose holder can see whether others wait for it. One thread, the last,
// takes it only when nobody else wants it.
//
// While nobody waits, taking it is one compare-exchange and giving it one
// store. Only TakeBy() of a turn that is held, and the Give() that ends it, use
// a mutex and a condition variable.
//
// Thread-safe, but for TakeLast(): the last thread only. Not recursive.
class RankTurn {
 public:
  // Holders sleep on `sleeper`, which gets a token when somebody begins to
  // wait. The last thread sleeps on `last`.
  RankTurn(Parker* sleeper, Parker* last) : sleeper_(sleeper), last_(last) {}
  RankTurn(const RankTurn&) = delete;
  RankTurn& operator=(const RankTurn&) = delete;

  // Takes the turn if it is free and nobody waits for it.
  bool TryTake() { return !IsWanted() && TakeIfFree(); }
  // Waits for it; false if `deadline_ns` passes first.
  bool TakeBy(int64_t deadline_ns);
  // As TryTake(). If that fails, sleeps until the turn is given or `last` gets
  // another token, and returns false.
  bool TakeLast();
  void Give();

  // Whether somebody waits in TakeBy().
  bool IsWanted() const {
    return num_waiting_.load(std::memory_order_seq_cst) != 0;
  }

 private:
  bool TakeIfFree() {
    bool expected = false;
    return is_taken_.compare_exchange_strong(expected, true,
                                             std::memory_order_seq_cst);
  }
  void WakeLast();

  Parker* const sleeper_;
  Parker* const last_;

  // Give() clears `is_taken_` and then looks who waits. A waiter announces
  // itself and then looks at `is_taken_`. So one of them sees the other.
  std::atomic<bool> is_taken_{false};
  std::atomic<int> num_waiting_{0};
  std::atomic<bool> last_waits_{false};

  Mutex mu_;  // Held from a waiter's look until it sleeps.
  CondVar given_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_RANK_TURN_H_

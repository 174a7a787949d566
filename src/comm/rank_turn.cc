#include "comm/rank_turn.h"

namespace commsched {

bool RankTurn::TakeBy(int64_t deadline_ns) {
  if (TryTake()) return true;
  num_waiting_.fetch_add(1, std::memory_order_seq_cst);
  sleeper_->Unpark();
  bool taken = false;
  {
    MutexLock lock(&mu_);
    bool in_time = true;
    while (true) {
      taken = TakeIfFree();
      if (taken || !in_time) break;
      in_time = given_.WaitUntil(&mu_, deadline_ns);
    }
  }
  num_waiting_.fetch_sub(1, std::memory_order_seq_cst);
  if (!taken) WakeLast();  // TryTake() may have failed because of this.
  return taken;
}

bool RankTurn::TakeLast() {
  last_waits_.store(true, std::memory_order_seq_cst);
  const bool taken = TryTake();
  if (!taken) last_->Park();
  last_waits_.store(false, std::memory_order_relaxed);
  return taken;
}

void RankTurn::Give() {
  is_taken_.store(false, std::memory_order_seq_cst);
  if (!IsWanted()) return WakeLast();
  { MutexLock lock(&mu_); }
  given_.SignalAll();
}

void RankTurn::WakeLast() {
  if (last_waits_.load(std::memory_order_seq_cst)) last_->Unpark();
}

}  // namespace commsched

#include "comm/turn.h"

namespace commsched {

bool Turn::TakeBy(int64_t deadline_ns, Parker* holder) {
  if (TryTake()) return true;
  num_waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (holder != nullptr) holder->Unpark();
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
  return taken;
}

bool Turn::Give() {
  if (keeper_.load(std::memory_order_relaxed) != nullptr) {
    keeper_.store(nullptr, std::memory_order_relaxed);
  }
  is_taken_.store(false, std::memory_order_seq_cst);
  if (!IsWanted()) return false;
  { MutexLock lock(&mu_); }
  given_.SignalAll();
  return true;
}

}  // namespace commsched

#include "comm/rank_turn.h"

namespace commsched {

bool RankTurn::TakeBy(int64_t deadline_ns) {
  const bool taken = turn_.TakeBy(deadline_ns, sleeper_);
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
  if (!turn_.Give()) WakeLast();
}

void RankTurn::WakeLast() {
  if (last_waits_.load(std::memory_order_seq_cst)) last_->Unpark();
}

}  // namespace commsched

// Whose turn it is to call a backend for a rank.
#ifndef COMMSCHED_SRC_COMM_RANK_TURN_H_
#define COMMSCHED_SRC_COMM_RANK_TURN_H_

#include <atomic>
#include <cstdint>

#include "base/parker.h"
#include "comm/turn.h"

namespace commsched {

// A turn that one thread, the last, takes only when nobody else wants it.
//
// Thread-safe, but for TakeLast(): the last thread only. Not recursive.
class RankTurn {
 public:
  // Holders sleep on `sleeper`, which gets a token when somebody begins to
  // wait. The last thread sleeps on `last`.
  RankTurn(Parker* sleeper, Parker* last) : sleeper_(sleeper), last_(last) {}
  RankTurn(const RankTurn&) = delete;
  RankTurn& operator=(const RankTurn&) = delete;

  // As those of Turn.
  bool TryTake() { return turn_.TryTake(); }
  bool TakeBy(int64_t deadline_ns);
  // As TryTake(). If that fails, sleeps until the turn is given or `last` gets
  // another token, and returns false.
  bool TakeLast();
  void Give();

  // Whether somebody waits in TakeBy().
  bool IsWanted() const { return turn_.IsWanted(); }

 private:
  void WakeLast();

  Turn turn_;
  Parker* const sleeper_;
  Parker* const last_;
  std::atomic<bool> last_waits_{false};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_RANK_TURN_H_

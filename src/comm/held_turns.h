#ifndef COMMSCHED_SRC_COMM_HELD_TURNS_H_
#define COMMSCHED_SRC_COMM_HELD_TURNS_H_

#include <atomic>
#include <vector>

#include "comm/turn.h"

namespace commsched {

// The turns of several lanes. Whoever takes several takes them in one order, so
// that nobody waits in a circle.
//
// Thread-compatible, but for Give(): any thread.
class HeldTurns {
 public:
  // In that order: of the numbers of their lanes. They outlive this.
  explicit HeldTurns(const std::vector<Turn*>& turns) : turns_(turns) {}
  ~HeldTurns() { Give(); }
  HeldTurns(const HeldTurns&) = delete;
  HeldTurns& operator=(const HeldTurns&) = delete;

  // Blocks until it has them all, which it has not yet. False: the calling
  // thread has one of them by another HeldTurns, and would wait for itself.
  [[nodiscard]] bool Take();
  // Nothing, if it has none.
  void Give();

 private:
  const std::vector<Turn*> turns_;
  std::atomic<bool> has_turns_{false};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_HELD_TURNS_H_

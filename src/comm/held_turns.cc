#include "comm/held_turns.h"

#include <algorithm>

namespace commsched {

bool HeldTurns::Take() {
  if (std::any_of(turns_.begin(), turns_.end(),
                  [](const Turn* turn) { return turn->IsKeptHere(); })) {
    return false;
  }
  for (Turn* turn : turns_) {
    turn->Take();
    turn->Keep();
  }
  has_turns_.store(true, std::memory_order_release);
  return true;
}

void HeldTurns::Give() {
  if (!has_turns_.exchange(false, std::memory_order_acq_rel)) return;
  for (Turn* turn : turns_) (void)turn->Give();
}

}  // namespace commsched

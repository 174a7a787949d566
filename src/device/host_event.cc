#include "device/host_event.h"

#include <cassert>

namespace commsched {

static_assert(Event::kMaxListeners == WaitableCounter::kMaxListeners);

void HostEvent::AddListener(Parker* listener) {
  const bool added = complete_.AddListener(listener);
  assert(added);  // More than kMaxListeners: the caller's contract.
  (void)added;
}

}  // namespace commsched

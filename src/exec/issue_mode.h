// How launches get from being due to being complete.
#ifndef COMMSCHED_SRC_EXEC_ISSUE_MODE_H_
#define COMMSCHED_SRC_EXEC_ISSUE_MODE_H_

#include <cstdint>
#include <vector>

#include "exec/watchdog.h"

namespace commsched {

// A way to issue launches in key order and to retire them: PolledMode,
// InlineMode and EnqueuedMode. Each has only its own state; what it shares with
// the others is IssueState, to which it tells everything.
class IssueMode {
 public:
  virtual ~IssueMode() = default;

  // As Issuer, of which these are the calls.
  virtual int64_t MakeDue(uint64_t number, int64_t now_ns) = 0;
  virtual bool Pump() = 0;
  virtual int64_t NextWakeNs() const = 0;
  // Asks other ranks what they have issued, for Pending(). As Pump().
  virtual void Ask() const {}
  virtual bool HasWork() const = 0;
  // In issue order; none where completions are not polled. As Pump().
  virtual std::vector<PendingLaunch> Pending() const { return {}; }
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_ISSUE_MODE_H_

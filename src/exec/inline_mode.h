// Issues launches on the thread that makes them due.
#ifndef COMMSCHED_SRC_EXEC_INLINE_MODE_H_
#define COMMSCHED_SRC_EXEC_INLINE_MODE_H_

#include <cstdint>

#include "base/clock.h"
#include "comm/plugin/table_support.h"
#include "exec/issue_mode.h"
#include "exec/issue_state.h"
#include "exec/launch_cursor.h"

namespace commsched {

// Of a program with Program::issue_inline: a launch is complete when the
// backend returns from it. So nothing is ever in flight, and there is nothing
// to wait for: what a launch needs is complete before it is due.
//
// One thread at a time.
class InlineMode final : public IssueMode {
 public:
  // `state` outlives the mode.
  explicit InlineMode(IssueState* state)
      : state_(*state), issued_(state_.launches_per_step) {}

  int64_t MakeDue(uint64_t number, int64_t now_ns) override;
  bool Pump() override { return false; }
  int64_t NextWakeNs() const override { return kNoDeadlineNs; }
  bool HasWork() const override { return false; }

 private:
  int64_t IssueUntil(uint64_t number, int64_t now_ns);

  IssueState& state_;
  LaunchCursor issued_;
  PluginMessage message_;  // of the backend's latest call
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_INLINE_MODE_H_

// Issues launches when they may be, and polls them until they are done.
#ifndef COMMSCHED_SRC_EXEC_POLLED_MODE_H_
#define COMMSCHED_SRC_EXEC_POLLED_MODE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "comm/plugin/table_support.h"
#include "exec/hold_clock.h"
#include "exec/issue_mode.h"
#include "exec/issue_state.h"
#include "exec/launch_cursor.h"
#include "exec/watchdog.h"

namespace commsched {

// A launch is issued when it is due, its waits are complete and the window has
// room; while one cannot be, none after it is. Issued launches progress side by
// side; completions are retired in issue order per communication lane, which is
// what the planner takes a lane to guarantee.
//
// Pump, NextWakeNs: whoever has the rank's turn, one thread at a time: the
// progress thread, who drives the rank, or who owns the issuer.
class PolledMode final : public IssueMode {
 public:
  // Launches posted and not yet done, per rank, whatever the plan allows.
  static constexpr uint32_t kMaxInFlight = 64;
  // What comm_create is told: the plan's cap on launches, if lower.
  static uint32_t RequestsFor(const Plan& plan);

  // `state` outlives the mode.
  explicit PolledMode(IssueState* state);

  int64_t MakeDue(uint64_t number, int64_t now_ns) override;
  bool Pump() override;
  int64_t NextWakeNs() const override;
  void Ask() const override;
  bool HasWork() const override {
    return !in_flight_.empty() ||
           issued_.number() != state_.due.load(std::memory_order_acquire);
  }
  std::vector<PendingLaunch> Pending() const override;

 private:
  struct InFlight {
    uint64_t step = 0;
    uint32_t launch = 0;
    uint32_t request = 0;
    bool done = false;
    bool drops = false;  // some members are left out
    int64_t wake_at_ns = 0;
    LaunchMark mark;
  };

  // Issues the next launch. If it cannot be yet, says why in stall_cause_.
  bool TryIssue();
  bool MayIssue(const LaunchProgram& launch, uint64_t step);
  bool LaneIsEmpty(uint32_t lane) const;
  bool IsOldest(const InFlight& entry) const;  // of its lane
  bool PollInFlight();
  absl::Status Poll(InFlight* entry);
  void RetireInOrder();
  void Retire(const InFlight& entry);
  void ReadStarts();
  void ReadStart(uint32_t group, const commsched_launch_start_t& start);
  void CheckDeadlines();
  uint32_t LaneOf(const InFlight& entry) const {
    return state_.program.launches[entry.launch].lane;
  }

  IssueState& state_;
  const uint32_t requests_;
  const bool reads_starts_;

  // Owned by who pumps.
  LaunchCursor issued_;
  std::vector<InFlight> in_flight_;    // in issue order
  std::vector<uint64_t> comm_issued_;  // by GroupId: launches so far
  PluginMessage message_;              // of the backend's latest call
  Watchdog watchdog_;
  StallCause stall_cause_ = StallCause::kDue;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_POLLED_MODE_H_

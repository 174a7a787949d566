// Plays steps of the plans of a job, without running them.
#ifndef COMMSCHED_SRC_PLAN_PREDICT_PLAYBACK_H_
#define COMMSCHED_SRC_PLAN_PREDICT_PLAYBACK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/blame.h"
#include "plan/plan.h"
#include "plan/sequence.h"

namespace commsched {

// When things happen to a launch, on the clock of the playback.
struct LaunchTimes {
  int64_t ready_ns = 0;   // producers and waits met, other than limits
  int64_t limits_ns = 0;  // waits for the window and for the arena met
  int64_t order_ns = 0;   // the launch before has been issued, and set up
  int64_t issue_ns = 0;   // all of them
  int64_t link_free_ns = 0;
  int64_t begin_ns = 0;     // on the link: all roles are there
  int64_t off_link_ns = 0;  // the next one may begin
  int64_t arrived_ns = 0;   // a latency later
};

// One step of one role.
struct StepTimes {
  std::vector<int64_t> start;  // by position in the role's sequence
  std::vector<int64_t> end;    // complete
  std::vector<LaunchTimes> launches;
};

// A role's plan and what its ops cost. Both outlive the playback.
struct PlayedRole {
  const Plan* plan = nullptr;
  const CostProfile* profile = nullptr;
};

// A compute lane runs its ops in host order, launches are issued in key order
// as their waits are met, each set up before the next, and a rank's link
// carries one at a time in that order, but for their latencies. A launch that
// several roles share begins
// when the last of them is there. Everything a node waits for comes before it
// in its role's sequence, and shared launches have equal keys that rise in each
// role, so one sweep over all roles gives the times of a step.
class Playback {
 public:
  explicit Playback(absl::Span<const PlayedRole> roles);

  // The next step, by role.
  std::vector<StepTimes> Step();

  size_t num_roles() const { return roles_.size(); }
  const Sequence& sequence(size_t role) const { return roles_[role].sequence; }
  // Time to arrival.
  int64_t link_ns(size_t role, uint32_t launch) const {
    return roles_[role].link_ns[launch];
  }
  int64_t overhead_ns(size_t role, uint32_t launch) const {
    return roles_[role].overhead_ns[launch];
  }

 private:
  struct Role {
    const Plan* plan = nullptr;
    Sequence sequence;
    std::vector<int64_t> cpu_ns;       // by position, of ranks that share cores
    std::vector<int64_t> link_ns;      // by launch, to arrival
    std::vector<int64_t> busy_ns;      // by launch
    std::vector<int64_t> overhead_ns;  // by launch
    std::vector<int64_t> lane_free;
    std::vector<int64_t> lane_complete;
    int64_t issuer_free = 0;
    int64_t link_free = 0;
    uint32_t next = 0;  // position
    StepTimes now;
    StepTimes before;
  };

  static Role MakeRole(const PlayedRole& role);
  static int64_t EndOf(const Role& role, const Wait& wait);
  static void RunOp(Role* role);
  static void Arrive(Role* role, uint32_t launch);
  static void Carry(Role* role, uint32_t launch, int64_t begin_ns);
  static uint64_t KeyAt(const Role& role);
  bool RunUpToLaunches();
  void RunNextLaunch();

  std::vector<Role> roles_;
};

// The steady state: the step looked at, and those around it, whose compute may
// hide its launches.
struct SteadyPlay {
  std::vector<std::vector<StepTimes>> steps;  // by step, by role
  size_t middle = 0;
  int64_t period_ns = 0;
  bool exact = false;  // SteadyState::exact()
};
SteadyPlay Settle(Playback* playback);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_PLAYBACK_H_

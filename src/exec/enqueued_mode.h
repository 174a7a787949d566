// Issues launches on streams of a device.
#ifndef COMMSCHED_SRC_EXEC_ENQUEUED_MODE_H_
#define COMMSCHED_SRC_EXEC_ENQUEUED_MODE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/plugin/table_support.h"
#include "exec/issue_mode.h"
#include "exec/issue_state.h"
#include "exec/launch_cursor.h"
#include "exec/monitor_guard.h"
#include "exec/watchdog.h"

namespace commsched {

// Of a program with Program::enqueue: MakeDue() enqueues waits, staging, launch
// and record on the stream of the launch's lane, within one turn of it, and the
// launches are due once all that is done. The monitor, which is who pumps,
// looks at the events, retires launches in key order, and watches deadlines and
// communicators.
//
// MakeDue: the token holder, one thread at a time. Pump, NextWakeNs: the
// monitor; where progress is the caller's, one thread after the other that
// waits.
class EnqueuedMode final : public IssueMode {
 public:
  // `state` outlives the mode.
  explicit EnqueuedMode(IssueState* state);
  ~EnqueuedMode() override;

  int64_t MakeDue(uint64_t number, int64_t now_ns) override;
  bool Pump() override;
  int64_t NextWakeNs() const override;
  bool HasWork() const override { return true; }

 private:
  bool EnqueueNext(int64_t now_ns);
  // With the lane's turn. False: `*code` says what the backend did, and if that
  // is OK, the device has failed, or `refusal_` says why.
  bool EnqueueLaunch(uint32_t index, uint64_t step, commsched_status_t* code);
  // The same of one that some members are left out of.
  bool EnqueueWithDrops(uint32_t index, uint64_t step, Stream* stream,
                        commsched_status_t* code);
  void EnqueueWaits(const LaunchProgram& launch, uint64_t step, Stream* stream);
  bool TakeAfterOthers(Turn* turn);
  void EnqueueInput(const LaunchProgram& launch, uint64_t step, Stream* stream);
  void EnqueueOutput(const LaunchProgram& launch, uint64_t step,
                     Stream* stream);
  // Whether `step` is a launch of a graph, which has all its launches.
  bool IsReplay(uint64_t step) const {
    const Replays* const replays = state_.spec.replays;
    return replays != nullptr && replays->IsReplay(step + 1);
  }
  // The modulus is constant, so that no division is made.
  LaunchMark& MarkOf(uint32_t index, uint64_t step) {
    return marks_[step % kMarkedSteps * state_.launches_per_step + index];
  }
  // A round of the monitor's.
  bool Look();
  void EnterMonitor();
  bool RetireEnded(uint64_t issued);
  // Launches below it, of those issued, the device is through with; and
  // whether it is with all of `step`.
  uint64_t NumEnded(uint64_t issued) const;
  bool HasEnded(uint64_t step) const;
  void Retire(uint64_t number);
  void CheckDeadline(uint64_t number);
  void LookAtOrders(int64_t now_ns);
  void DecideWhenToLook(bool busy);

  IssueState& state_;

  // Written by the token holder, before due, and read by the monitor: by launch
  // and step, whose number run-ahead bounds.
  static constexpr uint64_t kMarkedSteps = Program::kRunAhead + 1;
  std::vector<LaunchMark> marks_;

  // Owned by the token holder.
  LaunchCursor issued_;
  PluginMessage message_;  // of the backend's latest call
  absl::Status refusal_;   // of a lane's turn
  // The last launch that members were left out of: the next one's scratch
  // memory is its. Null: there was none.
  Event* last_drop_ = nullptr;
  uint64_t last_drop_generation_ = 0;

  // Owned by the monitor.
  bool entered_ = false;
  uint64_t guarded_ = 0;           // As the guard knows it; 0: not.
  uint64_t num_retired_ = 0;       // IssueState::retired is the same, for all.
  uint64_t watched_ = UINT64_MAX;  // Whose time runs.
  Watchdog watchdog_;
  int64_t busy_ns_ = 0;  // When something was last under way.
  int64_t next_look_ns_ = 0;

  bool rests_ = false;  // It sleeps until somebody issues.

  MonitorRound round_;  // Read by the guard.

  // Who issues has to wake the monitor. Written by it, read by the token
  // holder.
  std::atomic<bool> idle_{false};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_ENQUEUED_MODE_H_

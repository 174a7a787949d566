#ifndef COMMSCHED_SRC_EXEC_HOLD_CLOCK_H_
#define COMMSCHED_SRC_EXEC_HOLD_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "exec/stall_clock.h"
#include "trace/recorder.h"

namespace commsched {

// Times what holds back the launch that is next in line, for the trace. All
// times are stamps (trace/stamper.h).
//
// NoteReady: any thread. The rest: the issuing thread.
class HoldClock {
 public:
  // Off: nothing is noted.
  HoldClock(uint32_t num_launches, bool on)
      : ready_(on ? 2 * num_launches : 0) {}

  bool on() const { return !ready_.empty(); }

  // A producer of `launch` has had its `after`; the last of them counts. Before
  // the launch is made due.
  void NoteReady(uint32_t launch, uint64_t step, int64_t now) {
    SlotOf(launch, step).store(now, std::memory_order_relaxed);
  }

  // The launch that is next cannot be issued now.
  void NoteStall(StallCause cause, int64_t now) {
    switch (cause) {
      case StallCause::kDue:
        return;
      case StallCause::kWait:
        waited_ = true;
        cap_since_ = -1;
        return;
      case StallCause::kWindow:
      case StallCause::kTickets:
        if (cap_since_ < 0) cap_since_ = now;
        return;
    }
  }

  // It has been issued. Hold::started_ns is not known yet.
  Hold Issued(uint32_t launch, uint64_t step, int64_t now) {
    Hold hold{.ready_ns = now,
              .started_ns = 0,
              .order_ns = 0,
              .cap_ns = cap_since_ < 0 ? 0 : now - cap_since_};
    // 0: it has no producers. Later than now: of a step that comes after the
    // next, whose host has run ahead.
    const int64_t ready = SlotOf(launch, step).load(std::memory_order_relaxed);
    if (ready != 0 && ready < now) {
      hold.ready_ns = ready;
      if (!waited_) hold.order_ns = std::max<int64_t>(0, last_issue_ - ready);
    }
    last_issue_ = now;
    waited_ = false;
    cap_since_ = -1;
    return hold;
  }

 private:
  std::atomic<int64_t>& SlotOf(uint32_t launch, uint64_t step) {
    return ready_[2 * launch + (step & 1)];
  }

  // By launch, of this step and of the next: relaxed, as a launch that is due
  // has been made so after all of its producers had theirs noted.
  std::vector<std::atomic<int64_t>> ready_;

  int64_t last_issue_ = 0;
  int64_t cap_since_ = -1;  // -1: not
  bool waited_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_HOLD_CLOCK_H_

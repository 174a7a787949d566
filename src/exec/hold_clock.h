// Why, and for how long, launches were held back.
#ifndef COMMSCHED_SRC_EXEC_HOLD_CLOCK_H_
#define COMMSCHED_SRC_EXEC_HOLD_CLOCK_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/recorder.h"

namespace commsched {

enum class StallCause : uint8_t {
  kDue,       // the next launch is not due: the host is behind
  kWait,      // it is due, but something that it waits for is not complete
  kWindow,    // only the window keeps it back (I3)
  kRequests,  // the backend takes no more launches at once
};
inline constexpr size_t kNumStallCauses = 4;

// Times what keeps the lane from issuing: summed by cause; and, for the trace,
// what held back each launch.
//
// NoteReady, StallNs: any thread. The rest: the issuing thread.
class HoldClock {
 public:
  // `traces`: whether NoteReady() and Issued() are called.
  HoldClock(uint32_t num_launches, bool traces)
      : ready_(traces ? 2 * num_launches : 0) {}
  HoldClock(const HoldClock&) = delete;
  HoldClock& operator=(const HoldClock&) = delete;

  bool traces() const { return !ready_.empty(); }

  // A producer of `launch` has had its `after`; the last of them counts. Before
  // the launch is made due.
  void NoteReady(uint32_t launch, uint64_t step, int64_t now_ns) {
    SlotOf(launch, step).store(now_ns, std::memory_order_relaxed);
  }

  // The launch that is next cannot be issued now.
  void BeginStall(StallCause cause, int64_t now_ns) {
    cause_ = cause;
    stalled_since_ns_ = now_ns;
    switch (cause) {
      case StallCause::kDue:
        return;
      case StallCause::kWait:
        waited_ = true;
        cap_since_ns_ = -1;
        return;
      case StallCause::kWindow:
      case StallCause::kRequests:
        if (cap_since_ns_ < 0) cap_since_ns_ = now_ns;
        return;
    }
  }
  bool stalled() const { return stalled_since_ns_ >= 0; }
  // Charges the time since BeginStall() to its cause.
  void EndStall(int64_t now_ns) {
    std::atomic<int64_t>& total = total_ns_[static_cast<size_t>(cause_)];
    total.store(
        total.load(std::memory_order_relaxed) + now_ns - stalled_since_ns_,
        std::memory_order_relaxed);
    stalled_since_ns_ = -1;
  }
  // In all stalls of `cause` that have ended.
  int64_t StallNs(StallCause cause) const {
    return total_ns_[static_cast<size_t>(cause)].load(
        std::memory_order_relaxed);
  }

  // The launch has been issued. Hold::started_ns is not known yet.
  Hold Issued(uint32_t launch, uint64_t step, int64_t now_ns) {
    Hold hold{.ready_ns = now_ns,
              .started_ns = 0,
              .order_ns = 0,
              .cap_ns = cap_since_ns_ < 0 ? 0 : now_ns - cap_since_ns_};
    // 0: it has no producers. Later than now: of a step that comes after the
    // next, whose host has run ahead.
    const int64_t ready_ns =
        SlotOf(launch, step).load(std::memory_order_relaxed);
    if (ready_ns != 0 && ready_ns < now_ns) {
      hold.ready_ns = ready_ns;
      if (!waited_) {
        hold.order_ns = std::max<int64_t>(0, last_issue_ns_ - ready_ns);
      }
    }
    last_issue_ns_ = now_ns;
    waited_ = false;
    cap_since_ns_ = -1;
    return hold;
  }

 private:
  std::atomic<int64_t>& SlotOf(uint32_t launch, uint64_t step) {
    return ready_[2 * launch + (step & 1)];
  }

  // If traced, by launch, of this step and of the next: relaxed, as a launch
  // that is due has been made so after all of its producers had theirs noted.
  std::vector<std::atomic<int64_t>> ready_;

  // Owned by the issuing thread.
  StallCause cause_ = StallCause::kDue;
  int64_t stalled_since_ns_ = -1;  // -1: not
  int64_t cap_since_ns_ = -1;      // -1: not
  int64_t last_issue_ns_ = 0;
  bool waited_ = false;

  // Statistics: written by the issuing thread, read by any, order irrelevant.
  std::array<std::atomic<int64_t>, kNumStallCauses> total_ns_ = {};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_HOLD_CLOCK_H_

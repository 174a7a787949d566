// Why, and for how long, the lane had nothing that it could issue.
#ifndef COMMSCHED_SRC_EXEC_STALL_CLOCK_H_
#define COMMSCHED_SRC_EXEC_STALL_CLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace commsched {

enum class StallCause : uint8_t {
  kDue,      // the next launch is not due: the host is behind
  kWait,     // it is due, but something that it waits for is not complete
  kWindow,   // only the window keeps it back (I3)
  kTickets,  // the backend takes no more launches at once
};
inline constexpr size_t kNumStallCauses = 4;

// Begin, End: the issuer. Read: any thread.
class StallClock {
 public:
  StallClock() = default;
  StallClock(const StallClock&) = delete;
  StallClock& operator=(const StallClock&) = delete;

  bool running() const { return begin_ns_ >= 0; }
  void Begin(StallCause cause, int64_t now_ns) {
    cause_ = cause;
    begin_ns_ = now_ns;
  }
  // Charges the time since Begin() to its cause.
  void End(int64_t now_ns) {
    std::atomic<int64_t>& total = total_ns_[static_cast<size_t>(cause_)];
    total.store(total.load(std::memory_order_relaxed) + now_ns - begin_ns_,
                std::memory_order_relaxed);
    begin_ns_ = -1;
  }
  int64_t Read(StallCause cause) const {
    return total_ns_[static_cast<size_t>(cause)].load(
        std::memory_order_relaxed);
  }

 private:
  // Owned by the issuer.
  StallCause cause_ = StallCause::kDue;
  int64_t begin_ns_ = -1;  // -1: none running

  // Statistics: written by the issuer, read by anyone, order irrelevant.
  std::array<std::atomic<int64_t>, kNumStallCauses> total_ns_ = {};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_STALL_CLOCK_H_

// Whether it pays to poll.
#ifndef COMMSCHED_SRC_COMM_POLLING_H_
#define COMMSCHED_SRC_COMM_POLLING_H_

#include <atomic>
#include <cstdint>

namespace commsched {

// Threads that poll give the core away in between. Where another thread
// computes, that costs a time slice of its, some milliseconds, whereas a thread
// that is woken may run at once (base/prompt_thread.h). So what one of them has
// lost, all pay back by not polling for many times as long.
//
// Thread-safe.
class Polling {
 public:
  static constexpr int64_t kSliceNs = int64_t{1} * 1000 * 1000;  // At least.
  static constexpr int64_t kPause = 32;

  bool IsWorthwhile(int64_t now_ns) const {
    return now_ns >= paused_until_ns_.load(std::memory_order_relaxed);
  }
  // The core was given away at `begin_ns` and came back at `end_ns`.
  void OnYield(int64_t begin_ns, int64_t end_ns) {
    const int64_t lost_ns = end_ns - begin_ns;
    if (lost_ns < kSliceNs) return;
    paused_until_ns_.store(end_ns + kPause * lost_ns,
                           std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> paused_until_ns_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_POLLING_H_

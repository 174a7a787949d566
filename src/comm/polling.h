// Whether it pays to poll.
#ifndef COMMSCHED_SRC_COMM_POLLING_H_
#define COMMSCHED_SRC_COMM_POLLING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace commsched {

// How many times longer than on a core of its own a rank waits for its turn,
// where so many share the cores of a host; 1 where they are few. All that poll
// give the core to each other, and each looks for some 30 us.
inline int64_t CrowdOf(int num_ranks, int64_t num_cores) {
  constexpr int64_t kFew = 8;
  return std::max<int64_t>(1, num_ranks / (kFew * num_cores));
}

// Threads that poll give the core away in between. Where another thread
// computes, that costs a time slice of its, some milliseconds, whereas a thread
// that is woken may run at once (base/prompt_thread.h). So after a loss nobody
// polls for as long as it took; after the next one for twice as long, and so
// on, up to kMostPauses times. Losses that are far apart do not add up.
//
// Thread-safe.
class Polling {
 public:
  static constexpr int64_t kLossNs = int64_t{1} * 1000 * 1000;
  static constexpr int64_t kMostPauses = 32;

  // `loss_ns`: what a time slice of another thread takes at least.
  explicit Polling(int64_t loss_ns = kLossNs) : loss_ns_(loss_ns) {}

  int64_t loss_ns() const { return loss_ns_; }
  bool IsWorthwhile(int64_t now_ns) const {
    return now_ns >= paused_until_ns_.load(std::memory_order_relaxed);
  }
  // The core was given away at `begin_ns` and came back at `end_ns`. What
  // threads tell at once may be counted once or twice.
  void OnYield(int64_t begin_ns, int64_t end_ns) {
    const int64_t lost_ns = end_ns - begin_ns;
    if (lost_ns < loss_ns_) return;
    const int64_t last_ns = paused_until_ns_.load(std::memory_order_relaxed);
    const bool again = begin_ns < last_ns + kMostPauses * lost_ns;
    const int64_t before = num_pauses_.load(std::memory_order_relaxed);
    const int64_t pauses = again ? std::min(2 * before, kMostPauses) : 1;
    num_pauses_.store(pauses, std::memory_order_relaxed);
    paused_until_ns_.store(end_ns + pauses * lost_ns,
                           std::memory_order_relaxed);
  }

 private:
  const int64_t loss_ns_;
  std::atomic<int64_t> paused_until_ns_{INT64_MIN / 2};
  std::atomic<int64_t> num_pauses_{1};  // As long as the loss, in that one.
};

// How long one thread has polled. What it gave away in between does not count:
// the core did other work meanwhile, such as the copies of another rank that
// the thread waits for. Thread-compatible.
class PollTime {
 public:
  // Somewhat more than it costs to sleep and to be woken, with the other ranks
  // that wait for who is woken.
  static constexpr int64_t kMostNs = int64_t{200} * 1000;

  explicit PollTime(int64_t now_ns, int64_t loss_ns = Polling::kLossNs)
      : loss_ns_(loss_ns), back_ns_(now_ns) {}

  void OnYield(int64_t begin_ns, int64_t end_ns) {
    polled_ns_ += begin_ns - back_ns_;
    back_ns_ = end_ns;
    if (end_ns - begin_ns >= loss_ns_) polled_ns_ = kMostNs;
  }
  // Whether it is better to sleep. Also where the core came back late: who
  // sleeps is woken sooner than who yields gets it.
  bool IsOver(int64_t now_ns) const {
    return polled_ns_ + now_ns - back_ns_ >= kMostNs;
  }

 private:
  int64_t loss_ns_;
  int64_t back_ns_;
  int64_t polled_ns_ = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_POLLING_H_

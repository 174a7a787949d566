// Who looks after those that watch launches of a device.
#ifndef COMMSCHED_SRC_EXEC_MONITOR_GUARD_H_
#define COMMSCHED_SRC_EXEC_MONITOR_GUARD_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace commsched {

// A round of a monitor's, as the guard sees it. Times are those of
// base/running_clock.h.
//
// Written by the monitor, read by the guard.
class MonitorRound {
 public:
  static constexpr int64_t kNone = INT64_MAX;

  void Enter(int64_t now_ns) {
    entered_ns_.store(now_ns, std::memory_order_release);
  }
  void Leave() { entered_ns_.store(kNone, std::memory_order_release); }
  // By when the launch is to be complete that is the oldest under way. kNone:
  // there is none.
  void SetDeadline(int64_t deadline_ns) {
    deadline_ns_.store(deadline_ns, std::memory_order_relaxed);
  }

  // When the guard decides in the monitor's place, if the round that is under
  // way does not end; kNone: there is none. `timeout_ns`: of a launch.
  int64_t LimitNs(int64_t timeout_ns) const;
  int64_t entered_ns() const {
    return entered_ns_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<int64_t> entered_ns_{kNone};
  std::atomic<int64_t> deadline_ns_{kNone};
};

// The monitor asks CUDA which launches have ended, and NCCL whether a
// communicator has failed. A call of theirs that does not return, such as one
// that waits for a lock of the driver's which a thread holds that waits for a
// kernel, holds it up, and no deadline would ever be found. So a thread of the
// process, which calls neither, fails the session of a monitor that is in one
// round beyond the deadline of its launch.
//
// Thread-safe.
class MonitorGuard {
 public:
  // That of this process: its thread is there while something is watched.
  static MonitorGuard& Process();

  MonitorGuard() = default;
  // Nothing is watched any more.
  ~MonitorGuard();
  MonitorGuard(const MonitorGuard&) = delete;
  MonitorGuard& operator=(const MonitorGuard&) = delete;

  // From here on `fail` may be called, once, by the guard's thread, without a
  // lock of its. `round` outlives Unwatch(). Without a thread to be had nothing
  // is watched, which the log says. Returns a number for Unwatch().
  uint64_t Watch(const MonitorRound* round, int64_t timeout_ns,
                 std::function<void(const absl::Status&)> fail);
  // When it returns `fail` is not running, and will not be called.
  void Unwatch(uint64_t number);

 private:
  struct Watched {
    const MonitorRound* round;
    int64_t timeout_ns;
    std::function<void(const absl::Status&)> fail;
    bool has_failed = false;
  };

  // Until `thread_number` is not that of the thread any more.
  void Run(uint64_t thread_number);
  // One that has to be failed, or null.
  Watched* FindLate(int64_t now_ns);

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<uint64_t, Watched> watched_;
  uint64_t last_number_ = 0;
  uint64_t failing_ = 0;  // The number of which `fail` is running; 0: none.
  // While something is watched; joined by who ends the last watch.
  std::thread thread_;
  uint64_t thread_number_ = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_MONITOR_GUARD_H_

// Locks with annotations that clang's -Wthread-safety checks.
//
// They wrap std::mutex rather than Abseil's: distributions ship Abseil
// without instrumentation, and the thread sanitizer then reports races that
// are not there.
#ifndef COMMSCHED_SRC_BASE_MUTEX_H_
#define COMMSCHED_SRC_BASE_MUTEX_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace commsched {

// "Wait for ever", as a deadline on the monotonic clock.
inline constexpr int64_t kNoDeadlineNs = INT64_MAX;

// `begin_ns` + `timeout_ns`, both not negative, or kNoDeadlineNs if that is out
// of reach.
inline int64_t DeadlineAfter(int64_t begin_ns, int64_t timeout_ns) {
  return timeout_ns >= kNoDeadlineNs - begin_ns ? kNoDeadlineNs
                                                : begin_ns + timeout_ns;
}

// How often threads of this process have blocked in this file, so that a test
// can show that a steady-state step does not (I6).
struct BlockingCounters {
  std::atomic<uint64_t> contended_locks{0};
  std::atomic<uint64_t> condition_waits{0};
};

inline BlockingCounters& GlobalBlockingCounters() {
  static constinit BlockingCounters counters;
  return counters;
}

// A non-recursive lock. Thread-safe.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (mu_.try_lock()) return;
    GlobalBlockingCounters().contended_locks.fetch_add(
        1, std::memory_order_relaxed);
    mu_.lock();
  }
  [[nodiscard]] bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mu_.try_lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

  // Tells the analysis that the lock is held where it cannot see it, as inside
  // a callback. Checks nothing.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Holds a Mutex for a scope. Owned by one thread.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) {
    mu_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

// A condition variable. Waits can wake spuriously: call them in a loop over
// the condition. Thread-safe.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    WaitUntil(mu, kNoDeadlineNs);
  }

  // Waits until signalled or until the monotonic clock (base/clock.h) reaches
  // `deadline_ns`. Returns false if the deadline has passed.
  bool WaitUntil(Mutex* mu, int64_t deadline_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    GlobalBlockingCounters().condition_waits.fetch_add(
        1, std::memory_order_relaxed);
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    bool in_time = true;
    if (deadline_ns == kNoDeadlineNs) {
      cv_.wait(lock);
    } else {
      const std::chrono::steady_clock::time_point deadline{
          std::chrono::nanoseconds(deadline_ns)};
      in_time = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    }
    lock.release();  // Still held: the caller unlocks.
    return in_time;
  }

  void SignalOne() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_MUTEX_H_

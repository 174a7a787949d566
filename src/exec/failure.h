// The first failure of a session, which sticks.
#ifndef COMMSCHED_SRC_EXEC_FAILURE_H_
#define COMMSCHED_SRC_EXEC_FAILURE_H_

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace commsched {

// First failure wins and sticks (I7): Set() keeps the first status it is given,
// and every later call of the session returns it.
//
// Thread-safe.
class Failure {
 public:
  // `on_failure`, if there is one, is told the first failure by the thread that
  // sets it, with no lock held.
  explicit Failure(std::function<void(const absl::Status&)> on_failure = {})
      : on_failure_(std::move(on_failure)) {}
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  // Keeps `status`, which must not be OK. False if there was one already.
  bool Set(const absl::Status& status) {
    {
      MutexLock lock(&mu_);
      if (!first_.ok()) return false;
      first_ = status;
      failed_.store(true, std::memory_order_release);  // acquired in failed()
    }
    if (on_failure_) on_failure_(status);
    return true;
  }

  // One load: for the hot path.
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  absl::Status status() const {
    if (!failed()) return absl::OkStatus();
    MutexLock lock(&mu_);
    return first_;
  }

 private:
  const std::function<void(const absl::Status&)> on_failure_;
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  absl::Status first_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_FAILURE_H_

#include "base/parker.h"

#include <chrono>

namespace commsched {

bool Parker::TryTakeToken() {
  uint32_t expected = kToken;
  return state_.compare_exchange_strong(
      expected, kEmpty, std::memory_order_acquire, std::memory_order_relaxed);
}

bool Parker::SleepLocked(std::unique_lock<std::mutex>& lock,
                         int64_t deadline_ns) {
  if (deadline_ns == kNoDeadlineNs) {
    cv_.wait(lock);
    return true;
  }
  const std::chrono::steady_clock::time_point deadline{
      std::chrono::nanoseconds(deadline_ns)};
  return cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
}

bool Parker::ParkUntil(int64_t deadline_ns) {
  if (TryTakeToken()) return true;
  uint32_t expected = kEmpty;
  if (sleeper_.sleep != nullptr) {
    if (!state_.compare_exchange_strong(expected, kParked,
                                        std::memory_order_relaxed)) {
      return TryTakeToken();
    }
    sleeper_.sleep(sleeper_.user, deadline_ns);
    return state_.exchange(kEmpty, std::memory_order_acquire) == kToken;
  }
  std::unique_lock<std::mutex> lock(mu_);
  if (!state_.compare_exchange_strong(expected, kParked,
                                      std::memory_order_relaxed)) {
    // A token came since we looked: only the owner leaves kToken.
    return TryTakeToken();
  }
  while (SleepLocked(lock, deadline_ns)) {
    if (TryTakeToken()) return true;  // Else woken for no reason.
  }
  // Out of time, unless a token came at the last moment.
  return state_.exchange(kEmpty, std::memory_order_acquire) == kToken;
}

void Parker::Unpark() {
  if (state_.exchange(kToken, std::memory_order_acq_rel) == kParked) {
    WakeOwner();
  }
}

void Parker::WakeOwner() {
  if (sleeper_.wake != nullptr) return sleeper_.wake(sleeper_.user);
  // The owner announced kParked under the lock; having held it, we know that
  // it sleeps by now, or has already seen the token.
  { const std::lock_guard<std::mutex> lock(mu_); }
  cv_.notify_one();
}

}  // namespace commsched

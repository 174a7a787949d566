#include "device/waitable_counter.h"

#include <chrono>
#include <thread>

namespace commsched {

WaitableCounter::~WaitableCounter() {
  // Acquire: pairs with the release at the end of AdvanceTo(), whose thread is
  // a few instructions from leaving.
  while ((state_.load(std::memory_order_acquire) & kUsers) != 0) {
    std::this_thread::yield();
  }
}

bool WaitableCounter::AddListener(Parker* listener) {
  if (num_listeners_ == kMaxListeners) return false;
  listeners_[num_listeners_++] = listener;
  return true;
}

void WaitableCounter::AdvanceTo(uint64_t value) {
  uint64_t old = state_.load(std::memory_order_relaxed);
  uint64_t raised = 0;
  bool wakes = false;
  do {
    if (ValueOf(old) >= value) return;
    wakes = num_listeners_ != 0 || (old & kAsleep) != 0;
    raised = (value << kValueShift) | (old & (kAsleep | kUsers));
    if (wakes) ++raised;
    // Release: our writes, to Reached() and WaitFor().
  } while (!state_.compare_exchange_weak(old, raised, std::memory_order_release,
                                         std::memory_order_relaxed));
  // Nobody to wake: the object may be gone already.
  if (!wakes) return;
  for (int i = 0; i < num_listeners_; ++i) listeners_[i]->Unpark();
  if ((raised & kAsleep) != 0) WakeAll();
  // Release: pairs with the destructor. Nothing may be touched after this.
  state_.fetch_sub(1, std::memory_order_release);
}

void WaitableCounter::WakeAll() {
  // A sleeper that announced itself before we raised the counter holds the lock
  // until it sleeps; having had the lock, the signal cannot come too early.
  { const std::lock_guard<std::mutex> lock(mu_); }
  cv_.notify_all();
}

bool WaitableCounter::WaitUntil(uint64_t value, int64_t deadline_ns) {
  if (Reached(value)) return true;
  std::unique_lock<std::mutex> lock(mu_);
  ++num_sleepers_;
  // Who raises the counter after this sees kAsleep; who did before is seen.
  uint64_t state = state_.fetch_or(kAsleep, std::memory_order_acquire);
  bool in_time = true;
  while (ValueOf(state) < value && in_time) {
    in_time = SleepLocked(lock, deadline_ns);
    state = state_.load(std::memory_order_acquire);
  }
  if (--num_sleepers_ == 0) {
    state_.fetch_and(~kAsleep, std::memory_order_relaxed);
  }
  return ValueOf(state) >= value;
}

bool WaitableCounter::SleepLocked(std::unique_lock<std::mutex>& lock,
                                  int64_t deadline_ns) {
  if (deadline_ns == kNoDeadlineNs) {
    cv_.wait(lock);
    return true;
  }
  const std::chrono::steady_clock::time_point deadline{
      std::chrono::nanoseconds(deadline_ns)};
  return cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
}

}  // namespace commsched

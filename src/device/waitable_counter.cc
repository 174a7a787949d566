#include "device/waitable_counter.h"

#include <thread>

namespace commsched {

WaitableCounter::~WaitableCounter() {
  constexpr uint64_t kUsers = (uint64_t{1} << kUserBits) - 1;
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
  do {
    if (ValueOf(old) >= value) return;
    const uint64_t users = old - (ValueOf(old) << kUserBits);
    raised = (value << kUserBits) + users + 1;
    // Sequentially consistent: releases our writes to Reached(), and is ordered
    // before the load of num_sleepers_ (see WaitFor()).
  } while (!state_.compare_exchange_weak(old, raised, std::memory_order_seq_cst,
                                         std::memory_order_relaxed));
  for (int i = 0; i < num_listeners_; ++i) listeners_[i]->Unpark();
  if (num_sleepers_.load(std::memory_order_seq_cst) != 0) WakeAll();
  // Release: pairs with the destructor. Nothing may be touched after this.
  state_.fetch_sub(1, std::memory_order_release);
}

void WaitableCounter::WakeAll() {
  // A sleeper that announced itself before our load holds the lock until it
  // sleeps; having had the lock, the signal cannot come too early.
  { const std::lock_guard<std::mutex> lock(mu_); }
  cv_.notify_all();
}

void WaitableCounter::WaitFor(uint64_t value) {
  if (Reached(value)) return;
  std::unique_lock<std::mutex> lock(mu_);
  // Announce, then look: with AdvanceTo() (raise, then look for sleepers) one
  // of the two must see the other, as all four are sequentially consistent.
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (ValueOf(state_.load(std::memory_order_seq_cst)) < value) {
    cv_.wait(lock);
  }
  num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace commsched

#ifndef COMMSCHED_SRC_DEVICE_WAITABLE_COUNTER_H_
#define COMMSCHED_SRC_DEVICE_WAITABLE_COUNTER_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/mutex.h"
#include "base/parker.h"

namespace commsched {

// A number that only grows, and that threads wait for.
//
// Raising it costs one atomic operation while nobody sleeps or listens; asking
// is one load. What a thread wrote before AdvanceTo(v) is visible to whoever
// has seen Reached(v) or returned from WaitFor(v).
//
// The counter may be destroyed as soon as a value has been seen, even while the
// thread that raised it is still on its way out of AdvanceTo(): the destructor
// waits for that.
//
// Waits do not count as blocking (BlockingCounters): they are waits for work,
// not for a lock; hence the bare std::mutex.
//
// Thread-safe, except AddListener(), which comes before any other use.
class WaitableCounter {
 public:
  static constexpr int kMaxListeners = 4;
  // Greater than any value that is ever counted to.
  static constexpr uint64_t kEnd = (uint64_t{1} << 55) - 1;

  WaitableCounter() = default;
  ~WaitableCounter();
  WaitableCounter(const WaitableCounter&) = delete;
  WaitableCounter& operator=(const WaitableCounter&) = delete;

  // `listener` is unparked whenever the counter grows. It must outlive the
  // counter. Returns false, changing nothing, if kMaxListeners are there.
  bool AddListener(Parker* listener);

  // Whether the counter is at `value` or beyond.
  bool Reached(uint64_t value) const {
    // Acquire: pairs with the exchange in AdvanceTo().
    return ValueOf(state_.load(std::memory_order_acquire)) >= value;
  }

  // Raises the counter to `value`, at most kEnd; does nothing if it is there
  // already.
  void AdvanceTo(uint64_t value);

  // Blocks the calling thread until Reached(value).
  void WaitFor(uint64_t value) { WaitUntil(value, kNoDeadlineNs); }
  // The same, but gives up at `deadline_ns` of SystemClock: whether it is
  // reached.
  bool WaitUntil(uint64_t value, int64_t deadline_ns);

 private:
  // state_ holds, from the lowest bit: the number of threads inside AdvanceTo()
  // that have raised it and still touch the object; whether any thread is in
  // the slow half of WaitFor(); the value.
  static constexpr uint64_t kUsers = 0xff;
  static constexpr uint64_t kAsleep = 0x100;
  static constexpr int kValueShift = 9;
  static uint64_t ValueOf(uint64_t state) { return state >> kValueShift; }

  void WakeAll();
  // Sleeps once; false if the deadline has passed.
  bool SleepLocked(std::unique_lock<std::mutex>& lock, int64_t deadline_ns);

  std::atomic<uint64_t> state_{0};

  // Constant once the counter is in use.
  std::array<Parker*, kMaxListeners> listeners_{};
  int num_listeners_ = 0;

  // Held by a sleeper from before its last look at state_ until it sleeps.
  std::mutex mu_;
  int num_sleepers_ = 0;  // guarded by mu_
  std::condition_variable cv_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_WAITABLE_COUNTER_H_

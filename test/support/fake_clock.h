// A clock that stands still until the test moves it.
#ifndef COMMSCHED_TEST_SUPPORT_FAKE_CLOCK_H_
#define COMMSCHED_TEST_SUPPORT_FAKE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace commsched {

// Thread-safe.
class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override {
    return now_ns_.load(std::memory_order_acquire);
  }
  void AdvanceNs(int64_t ns) {
    now_ns_.fetch_add(ns, std::memory_order_acq_rel);
  }

 private:
  std::atomic<int64_t> now_ns_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_FAKE_CLOCK_H_

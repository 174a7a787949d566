// Waiting for another thread, with an end.
#ifndef COMMSCHED_TEST_SUPPORT_AWAIT_H_
#define COMMSCHED_TEST_SUPPORT_AWAIT_H_

#include <cstdint>
#include <thread>

#include "base/clock.h"

namespace commsched::test {

// Yields until `done()` is true, and returns whether it became so within two
// minutes: a test whose other thread never gets there must fail, not hang.
template <typename Done>
[[nodiscard]] bool Await(Done done) {
  constexpr int64_t kLimitNs = int64_t{120} * 1000 * 1000 * 1000;
  const int64_t deadline_ns = SystemClock::Get().NowNs() + kLimitNs;
  while (!done()) {
    if (SystemClock::Get().NowNs() > deadline_ns) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_AWAIT_H_

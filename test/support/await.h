// Waiting for another thread, with an end.
#ifndef COMMSCHED_TEST_SUPPORT_AWAIT_H_
#define COMMSCHED_TEST_SUPPORT_AWAIT_H_

#include <chrono>
#include <thread>

namespace commsched::test {

// Yields until `done()` is true, and returns whether it became so within two
// minutes: a test whose other thread never gets there must fail, not hang.
template <typename Done>
[[nodiscard]] bool Await(Done done) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::minutes(2);
  while (!done()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_AWAIT_H_

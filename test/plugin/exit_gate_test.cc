#include "plugins/ucx/process/exit_gate.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

// What exit() calls, in the order of which the last comes first.
std::atomic<bool> exiting{false};
std::atomic<bool> left{false};
void SayThatItExits() { exiting = true; }
void EndWithWhetherItLeft() { _exit(left ? 0 : 1); }

void ExitWhileAThreadIsInside() {
  ASSERT_EQ(atexit(&EndWithWhetherItLeft), 0);
  std::atomic<bool> inside{false};
  std::thread other([&] {
    {
      const InUcx in_ucx;
      inside = true;
      while (!exiting) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      left = true;
    }
    const InUcx never;  // Nobody comes in any more.
    _exit(2);
  });
  while (!inside) std::this_thread::yield();
  ASSERT_EQ(atexit(&SayThatItExits), 0);
  exit(0);
}

TEST(ExitGateTest, ExitWaitsForWhoIsInUcxAndLetsNobodyIn) {
  // In a process of its own, which has threads.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitWhileAThreadIsInside(), testing::ExitedWithCode(0), "");
}

TEST(ExitGateTest, ACallMayBeWithinAnother) {
  const InUcx outer;
  const InUcx inner;
}

}  // namespace
}  // namespace commsched::ucx

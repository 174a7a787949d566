#include "plugins/ucx/process/exit_gate.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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
      const auto late =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (std::chrono::steady_clock::now() < late) {
        std::this_thread::yield();
      }
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

// What exit() calls before and after the gate, in a child that was forked.
std::atomic<std::chrono::steady_clock::time_point> exit_began{};
void SayWhenItExits() { exit_began = std::chrono::steady_clock::now(); }
void EndWithWhetherItWaited() {
  const auto waited = std::chrono::steady_clock::now() - exit_began.load();
  _exit(waited < std::chrono::seconds(1) ? 0 : 1);
}

// The thread is not there in the child, and does not leave there.
void ExitInAChildWhileAThreadIsInside() {
  ASSERT_EQ(atexit(&EndWithWhetherItWaited), 0);
  std::atomic<bool> inside{false};
  std::atomic<bool> over{false};
  std::thread other([&] {
    const InUcx in_ucx;
    inside = true;
    while (!over) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  ASSERT_EQ(atexit(&SayWhenItExits), 0);
  const pid_t child = fork();
  if (child == 0) exit(0);
  int status = -1;
  const bool has_ended = waitpid(child, &status, 0) == child;
  over = true;
  other.join();
  _exit(has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

TEST(ExitGateTest, ExitOfAForkedChildWaitsForNobody) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitInAChildWhileAThreadIsInside(), testing::ExitedWithCode(0),
              "");
}

TEST(ExitGateTest, ACallMayBeWithinAnother) {
  const InUcx outer;
  const InUcx inner;
}

}  // namespace
}  // namespace commsched::ucx

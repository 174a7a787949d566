#include "base/prompt_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <thread>

#include "gtest/gtest.h"

namespace commsched {
namespace {

// As the kernel gives it, by sched_getattr(2).
struct Attributes {
  uint32_t size = 0;
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t slice_ns = 0;
  uint64_t unused[2] = {};
};

Attributes OfThisThread() {
  Attributes attributes;
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0),
            0);
  return attributes;
}

// What is changed belongs to the thread, and ends with it.
void OnAThread(const std::function<void()>& body) { std::thread(body).join(); }

TEST(PromptThreadTest, TimedWaitsHaveNoSlack) {
  OnAThread([] {
    ASSERT_GT(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
    MakeThreadPrompt();
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1);
  });
}

TEST(PromptThreadTest, ItsSliceIsShorterThanThatOfOthers) {
  if (OfThisThread().slice_ns == 0) GTEST_SKIP() << "slices need Linux 6.12";
  const uint64_t others_ns = OfThisThread().slice_ns;
  OnAThread([others_ns] {
    MakeThreadPrompt();
    EXPECT_LT(OfThisThread().slice_ns, others_ns);
    EXPECT_GT(OfThisThread().slice_ns, 0u);
  });
  EXPECT_EQ(OfThisThread().slice_ns, others_ns);
}

TEST(PromptThreadTest, ItKeepsItsPolicyAndItsShareOfTheCpu) {
  OnAThread([] {
    const auto id = static_cast<id_t>(syscall(SYS_gettid));
    ASSERT_EQ(setpriority(PRIO_PROCESS, id, 5), 0);
    MakeThreadPrompt();
    EXPECT_EQ(OfThisThread().policy, uint32_t{SCHED_OTHER});
    EXPECT_EQ(OfThisThread().nice, 5);
  });
}

TEST(PromptThreadTest, OtherPoliciesAreLeftAlone) {
  OnAThread([] {
    const sched_param none = {};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    const Attributes before = OfThisThread();
    MakeThreadPrompt();
    EXPECT_EQ(OfThisThread().policy, uint32_t{SCHED_BATCH});
    EXPECT_EQ(OfThisThread().slice_ns, before.slice_ns);
  });
}

}  // namespace
}  // namespace commsched

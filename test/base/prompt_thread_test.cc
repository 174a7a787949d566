#include "base/prompt_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <thread>
#include <vector>

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

std::vector<int> CoresOfThisThread() {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) != 0) cores.push_back(core);
  }
  return cores;
}

// Of a hundred times that somebody has claimed the core that the calling thread
// runs on, how often it is on another one after it has claimed. The kernel may
// move it as well, at any time; hence as often.
int TimesMoved() {
  int times = 0;
  for (int i = 0; i < 100; ++i) {
    CoreClaims claims;
    claims.Claim();
    const int core = CurrentCore();
    claims.Claim();
    times += CurrentCore() != core;
  }
  return times;
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

TEST(PromptThreadTest, ItLeavesAClaimedCoreAndMayRunWhereItMightBefore) {
  if (CoresOfThisThread().size() < 2) GTEST_SKIP() << "there is one core";
  OnAThread([] {
    const std::vector<int> before = CoresOfThisThread();
    MakeThreadPrompt();
    EXPECT_GT(TimesMoved(), 50);
    EXPECT_EQ(CoresOfThisThread(), before);
  });
}

TEST(PromptThreadTest, EveryCoreIsClaimedOnce) {
  const size_t cores = std::min<size_t>(CoresOfThisThread().size(), 64);
  OnAThread([cores] {
    MakeThreadPrompt();
    int times = 0;
    for (int i = 0; i < 100; ++i) {
      CoreClaims claims;
      std::set<int> claimed;
      for (size_t n = 0; n < cores; ++n) {
        claims.Claim();
        claimed.insert(CurrentCore());
      }
      times += claimed.size() == cores;
    }
    EXPECT_GT(times, 50);
  });
}

TEST(PromptThreadTest, WhereAllCoresAreClaimedItStays) {
  const std::vector<int> cores = CoresOfThisThread();
  OnAThread([&cores] {
    MakeThreadPrompt();
    int times = 0;
    for (int i = 0; i < 100; ++i) {
      CoreClaims claims;
      for (size_t n = 0; n < cores.size(); ++n) claims.Claim();
      const int core = CurrentCore();
      claims.Claim();
      times += CurrentCore() == core;
    }
    EXPECT_GT(times, 50);
    EXPECT_EQ(CoresOfThisThread(), cores);
  });
}

// Without clearing, the thread would leave the core that it has claimed itself,
// as TimesMoved() counts.
TEST(PromptThreadTest, ClearedCoresCanBeClaimedAgain) {
  if (CoresOfThisThread().size() < 2) GTEST_SKIP() << "there is one core";
  OnAThread([] {
    MakeThreadPrompt();
    int times = 0;
    for (int i = 0; i < 100; ++i) {
      CoreClaims claims;
      claims.Claim();
      const int core = CurrentCore();
      claims.Clear();
      claims.Claim();
      times += CurrentCore() == core;
    }
    EXPECT_GT(times, 50);
  });
}

TEST(PromptThreadTest, ThreadsOfTheProgramStayWhereTheyAre) {
  OnAThread([] { EXPECT_LT(TimesMoved(), 50); });
}

}  // namespace
}  // namespace commsched

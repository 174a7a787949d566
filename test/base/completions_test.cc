#include "base/completions.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kAtOnce = 0;

std::vector<uint64_t> Take(Completions& completions, size_t most) {
  std::vector<Completion> out(most);
  out.resize(completions.Next(absl::MakeSpan(out), kAtOnce));
  std::vector<uint64_t> requests;
  for (const Completion& completion : out) {
    requests.push_back(completion.request);
  }
  return requests;
}

TEST(CompletionsTest, WhatHasFinishedIsTakenInThatOrder) {
  Completions completions(8);
  for (int i = 0; i < 3; ++i) ASSERT_OK(completions.Reserve());
  completions.Add({.key = 1, .request = 5});
  completions.Add({.key = 2, .request = 4});
  EXPECT_THAT(Take(completions, 8), ElementsAre(5, 4));
  completions.Add({.key = 1, .request = 6});
  EXPECT_THAT(Take(completions, 8), ElementsAre(6));
}

TEST(CompletionsTest, NoMoreAreTakenThanThereIsRoomFor) {
  Completions completions(8);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_OK(completions.Reserve());
    completions.Add({.request = i});
  }
  EXPECT_THAT(Take(completions, 2), ElementsAre(0, 1));
  EXPECT_THAT(Take(completions, 2), ElementsAre(2));
}

TEST(CompletionsTest, APlaceIsFreeOnceItsCompletionIsTaken) {
  Completions completions(1);
  ASSERT_OK(completions.Reserve());
  const absl::Status full = completions.Reserve();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("all 1 places"));
  completions.Add({.request = 1});
  EXPECT_FALSE(completions.Reserve().ok());
  EXPECT_THAT(Take(completions, 1), ElementsAre(1));
  EXPECT_OK(completions.Reserve());
  completions.GiveBack();
  EXPECT_OK(completions.Reserve());
}

TEST(CompletionsTest, TheyKeepTheirOrderWhileTheirMemoryGrows) {
  Completions completions(1000);
  uint64_t added = 0;
  uint64_t taken = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 7; ++i) {
      ASSERT_OK(completions.Reserve());
      completions.Add({.request = added++});
    }
    for (uint64_t request : Take(completions, 3)) EXPECT_EQ(request, taken++);
  }
  for (uint64_t request : Take(completions, 1000)) EXPECT_EQ(request, taken++);
  EXPECT_EQ(taken, added);
}

TEST(CompletionsTest, NoMoreAtOnceThanBeforeAllocatesNothing) {
  Completions completions(1000);
  const auto round = [&] {
    for (uint64_t i = 0; i < 100; ++i) {
      if (!completions.Reserve().ok()) return;
      completions.Add({.request = i});
    }
    Completion out[100];
    EXPECT_EQ(completions.Next(out, kAtOnce), 100u);
  };
  round();
  const uint64_t before = HeapAllocations();
  for (int i = 0; i < 10; ++i) round();
  EXPECT_EQ(HeapAllocations(), before);
}

TEST(CompletionsTest, WhoWaitsIsWokenByWhatFinishes) {
  Completions completions(8);
  ASSERT_OK(completions.Reserve());
  std::thread server([&] { completions.Add({.request = 7}); });
  Completion out[1];
  EXPECT_EQ(completions.Next(out, kNoDeadlineNs), 1u);
  EXPECT_EQ(out[0].request, 7u);
  server.join();
}

TEST(CompletionsTest, WhoDoesNotWaitDoesNotSleepEither) {
  Completions completions(8);
  Completion out[1];
  const uint64_t waits = GlobalBlockingCounters().condition_waits.load();
  EXPECT_EQ(completions.Next(out, kAtOnce), 0u);
  EXPECT_EQ(completions.Next(out, SystemClock::Get().NowNs()), 0u);
  EXPECT_EQ(GlobalBlockingCounters().condition_waits.load(), waits);
}

TEST(CompletionsTest, AWakeUpIsForWhoWaits) {
  Completions completions(8);
  completions.Wake();
  Completion out[1];
  EXPECT_EQ(completions.Next(out, kAtOnce), 0u);
  EXPECT_EQ(completions.Next(out, kNoDeadlineNs), 0u);
}

TEST(CompletionsTest, AWakeUpEndsAWaitOnce) {
  Completions completions(8);
  completions.Wake();
  Completion out[1];
  EXPECT_EQ(completions.Next(out, kNoDeadlineNs), 0u);
  const int64_t soon_ns = SystemClock::Get().NowNs() + 1000;
  EXPECT_EQ(completions.Next(out, soon_ns), 0u);
  EXPECT_GE(SystemClock::Get().NowNs(), soon_ns);
}

}  // namespace
}  // namespace commsched

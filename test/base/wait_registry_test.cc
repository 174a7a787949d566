#include "base/wait_registry.h"

#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using testing::ContainsRegex;
using testing::IsEmpty;

TEST(WaitRegistryTest, ACallIsDescribedWhileItLives) {
  EXPECT_THAT(DescribeWaiters(), IsEmpty());
  std::optional<WaitingCall> first(std::in_place, 3, "joins the job");
  std::optional<WaitingCall> second(std::in_place, WaitingCall::kNoRank,
                                    "waits for ", "gather 'x'");
  std::optional<WaitingCall> third(std::in_place, 4, "waits");
  EXPECT_THAT(DescribeWaiters(),
              ContainsRegex("^rank 3: joins the job for [0-9.]+ s\n"
                            "waits for gather 'x' for [0-9.]+ s\n"
                            "rank 4: waits for [0-9.]+ s\n$"));
  second.reset();
  EXPECT_THAT(DescribeWaiters(), ContainsRegex("^rank 3: .*\nrank 4: .*\n$"));
  third.reset();
  first.reset();
  EXPECT_THAT(DescribeWaiters(), IsEmpty());
}

// Also under the thread sanitizer.
TEST(WaitRegistryTest, CallsComeAndGoWhileOthersAreDescribed) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([rank] {
      for (int i = 0; i < 200; ++i) WaitingCall call(rank, "waits");
    });
  }
  for (int i = 0; i < 200; ++i) (void)DescribeWaiters();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(DescribeWaiters(), IsEmpty());
}

}  // namespace
}  // namespace commsched

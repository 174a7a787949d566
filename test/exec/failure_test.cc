#include "exec/failure.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(FailureTest, IsOkUntilSet) {
  Failure failure;
  EXPECT_FALSE(failure.failed());
  EXPECT_OK(failure.status());
}

TEST(FailureTest, FirstFailureWinsAndSticks) {
  Failure failure;
  EXPECT_TRUE(failure.Set(absl::AbortedError("first")));
  EXPECT_FALSE(failure.Set(absl::InternalError("second")));
  EXPECT_TRUE(failure.failed());
  EXPECT_THAT(failure.status(), StatusIs(absl::StatusCode::kAborted, "first"));
}

TEST(FailureTest, OneOfManyThreadsWins) {
  Failure failure;
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      if (failure.Set(absl::AbortedError(absl::StrCat(i)))) ++winners;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_FALSE(failure.status().ok());
}

}  // namespace
}  // namespace commsched

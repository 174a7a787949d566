#include "examples/trainer/rank_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <vector>

namespace commsched::trainer {
namespace {

using ::testing::ElementsAre;

// Work of which rank 1 fails, and the others end when they hear of it.
class FailingWork {
 public:
  RankWork work() {
    const std::shared_future<void> aborted = aborted_.get_future().share();
    return {.run =
                [aborted](int64_t rank) {
                  if (rank == 1) return absl::DataLossError("gone");
                  aborted.wait();
                  return absl::InternalError("told of it");
                },
            .abort =
                [this](int64_t rank, const absl::Status&) {
                  EXPECT_EQ(rank, 1);
                  aborted_.set_value();
                },
            .on_failure =
                [this](const absl::Status& failure) {
                  told.push_back(std::string(failure.message()));
                }};
  }

  std::vector<std::string> told;

 private:
  std::promise<void> aborted_;
};

RankWork Work(std::function<absl::Status(int64_t)> run) {
  return {.run = std::move(run),
          .abort = [](int64_t, const absl::Status&) {},
          .on_failure = [](const absl::Status&) {}};
}

TEST(RankThreadsTest, EveryRankRuns) {
  std::vector<int> runs(3);
  EXPECT_TRUE(RunRanks(3, Work([&](int64_t rank) {
                         ++runs[static_cast<size_t>(rank)];
                         return absl::OkStatus();
                       }))
                  .ok());
  EXPECT_THAT(runs, ElementsAre(1, 1, 1));
}

TEST(RankThreadsTest, TheFirstFailureIsToldOnceAndReturned) {
  FailingWork failing;
  const absl::Status status = RunRanks(3, failing.work());
  EXPECT_EQ(status, absl::DataLossError("rank 1: gone"));
  EXPECT_THAT(failing.told, ElementsAre("rank 1: gone"));
}

TEST(RankThreadsTest, WhatARankThrowsIsItsFailure) {
  EXPECT_EQ(RunRanks(1, Work([](int64_t) -> absl::Status {
                       throw std::runtime_error("thrown");
                     })),
            absl::InternalError("rank 0: thrown"));
}

TEST(RankThreadsDeathTest, ARankThatIsStuckAfterAFailureEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  RankWork work = Work([](int64_t rank) {
    if (rank == 1) return absl::DataLossError("gone");
    std::promise<void> never;
    never.get_future().wait();
    return absl::OkStatus();
  });
  work.grace = std::chrono::milliseconds(10);
  EXPECT_EXIT((void)RunRanks(2, work), testing::ExitedWithCode(1),
              "rank 0 has not ended .* after the failure");
}

TEST(RankThreadsTest, ARankThatWritesIsLeftToEndAfterAFailure) {
  std::promise<void> looked_at;
  RankWork work = Work([&](int64_t rank) {
    if (rank == 1) return absl::DataLossError("gone");
    looked_at.get_future().wait();
    return absl::OkStatus();
  });
  work.writes = [&](int64_t rank) {
    if (rank == 0) looked_at.set_value();
    return rank == 0;
  };
  work.grace = std::chrono::milliseconds(10);
  EXPECT_EQ(RunRanks(2, work), absl::DataLossError("rank 1: gone"));
}

}  // namespace
}  // namespace commsched::trainer

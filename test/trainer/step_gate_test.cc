#include "examples/trainer/step_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace commsched::trainer {
namespace {

TEST(StepGateTest, AllStepsAreTakenWhereNobodyAsksToEnd) {
  StepGate gate(3, 5, nullptr);
  EXPECT_TRUE(gate.Enter(3));
  EXPECT_TRUE(gate.Enter(4));
  EXPECT_FALSE(gate.Enter(5));
  EXPECT_EQ(gate.end(), 5);
  EXPECT_FALSE(gate.ended_early());
}

TEST(StepGateTest, AStepThatOneRankHasBegunIsBegunByAll) {
  std::atomic<int> request{0};
  StepGate gate(0, 10, &request);
  EXPECT_TRUE(gate.Enter(0));
  EXPECT_TRUE(gate.Enter(1));  // The first rank is ahead.
  request = 15;
  EXPECT_TRUE(gate.Enter(0));
  EXPECT_TRUE(gate.Enter(1));
  EXPECT_FALSE(gate.Enter(2));
  EXPECT_FALSE(gate.Enter(2));
  EXPECT_EQ(gate.end(), 2);
  EXPECT_TRUE(gate.ended_early());
}

// There would be nothing to report.
TEST(StepGateTest, TheFirstStepIsAlwaysTaken) {
  const std::atomic<int> request{2};
  StepGate gate(7, 10, &request);
  EXPECT_TRUE(gate.Enter(7));
  EXPECT_FALSE(gate.Enter(8));
  EXPECT_EQ(gate.end(), 8);
}

TEST(StepGateTest, ARequestInTheLastStepEndsNothingEarly) {
  std::atomic<int> request{0};
  StepGate gate(0, 1, &request);
  EXPECT_TRUE(gate.Enter(0));
  request = 2;
  EXPECT_FALSE(gate.Enter(1));
  EXPECT_FALSE(gate.ended_early());
}

TEST(StepGateTest, RanksEndAfterTheSameStepWheneverTheRequestComes) {
  constexpr int kRanks = 4;
  for (int64_t request_at : {1, 7, 100, 1000}) {
    std::atomic<int> request{0};
    StepGate gate(0, 1'000'000, &request);
    std::vector<int64_t> ends(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        int64_t step = 0;
        for (; gate.Enter(step); ++step) {
          if (rank == 0 && step == request_at) request = 2;
        }
        ends[static_cast<size_t>(rank)] = step;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::count(ends.begin(), ends.end(), gate.end()), kRanks);
    EXPECT_GT(gate.end(), request_at);
  }
}

}  // namespace
}  // namespace commsched::trainer

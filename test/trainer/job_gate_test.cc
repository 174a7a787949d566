#include "examples/trainer/job_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

namespace commsched::trainer {
namespace {

TEST(JobGateTest, AllStepsAreTakenWhereNobodyAsksToEnd) {
  const std::atomic<int> request{0};
  JobGate gate(3, 5, &request, nullptr);
  EXPECT_TRUE(gate.Enter(3));
  EXPECT_TRUE(gate.Enter(4));
  EXPECT_FALSE(gate.Enter(5));
  EXPECT_EQ(gate.end(), 5);
  EXPECT_FALSE(gate.ended_early());
}

TEST(JobGateTest, ARequestThatTheOthersDoNotShareIsDropped) {
  const std::atomic<int> request{2};
  std::atomic<int> shown{0};
  JobGate gate(0, 3, &request, [&](int64_t begun) {
    EXPECT_EQ(begun, 0);
    ++shown;
    return absl::StatusOr<std::vector<int64_t>>(
        absl::DeadlineExceededError("nobody came"));
  });
  EXPECT_TRUE(gate.Enter(0));
  while (shown == 0) std::this_thread::yield();
  EXPECT_TRUE(gate.Enter(1));
  EXPECT_TRUE(gate.Enter(2));
  EXPECT_FALSE(gate.Enter(3));
  EXPECT_FALSE(gate.ended_early());
}

// Ranks that wait for each other within each step, as collectives do, and are
// asked at different times.
TEST(JobGateTest, RanksEndAfterTheSameStepWheneverTheyAreAsked) {
  constexpr int kRanks = 3;
  for (const int64_t asked_at : {0, 1, 40, 200}) {
    std::barrier<> step_barrier(kRanks);
    std::barrier<> shown_barrier(kRanks);
    std::vector<int64_t> shown(kRanks);
    std::vector<std::atomic<int>> requests(kRanks);
    std::vector<std::unique_ptr<JobGate>> gates;
    for (int rank = 0; rank < kRanks; ++rank) {
      gates.push_back(std::make_unique<JobGate>(
          0, 1'000'000, &requests[rank], [&, rank](int64_t begun) {
            shown[rank] = begun;
            shown_barrier.arrive_and_wait();
            return absl::StatusOr<std::vector<int64_t>>(shown);
          }));
    }
    std::vector<int64_t> ends(kRanks);
    std::vector<std::thread> threads;
    std::atomic<int64_t> reached{0};
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        int64_t step = 0;
        for (; gates[rank]->Enter(step); ++step) {
          if (rank == 0) reached = step;
          step_barrier.arrive_and_wait();
        }
        ends[rank] = step;
      });
    }
    // As a signal does, a request comes whatever the rank waits for.
    threads.emplace_back([&] {
      while (reached < asked_at) std::this_thread::yield();
      for (int rank = 0; rank < kRanks; ++rank) {
        requests[rank] = 15;
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      }
    });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ends[rank], gates[0]->end());
      EXPECT_EQ(gates[rank]->end(), gates[0]->end());
      EXPECT_TRUE(gates[rank]->ended_early());
    }
    EXPECT_GT(gates[0]->end(), asked_at);
  }
}

}  // namespace
}  // namespace commsched::trainer

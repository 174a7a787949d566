#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "examples/trainer/step_gate.h"

namespace commsched::trainer {
namespace {

using Shown = StepGate::Shown;
using AllShown = absl::StatusOr<std::vector<Shown>>;

// Where the gates of ranks meet, each as often as all others.
class Meetings {
 public:
  explicit Meetings(size_t num_ranks) : come_(num_ranks) {}

  // Until all have come to the same meeting.
  AllShown Meet(size_t rank, const Shown& mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    const size_t number = come_[rank]++;
    if (number == meetings_.size()) {
      meetings_.emplace_back();
      meetings_.back().shown.resize(come_.size());
    }
    meetings_[number].shown[rank] = mine;
    ++meetings_[number].num_come;
    changed_.notify_all();
    changed_.wait(lock, [&] {
      return meetings_[number].num_come == come_.size() || has_failed_;
    });
    if (has_failed_) return absl::AbortedError("a rank is lost");
    return meetings_[number].shown;
  }

  void Fail() {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_failed_ = true;
    changed_.notify_all();
  }

 private:
  struct Meeting {
    std::vector<Shown> shown;
    size_t num_come = 0;
  };

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::vector<Meeting> meetings_;
  std::vector<size_t> come_;  // By rank: meetings that it has come to.
  bool has_failed_ = false;
};

// Ranks that wait for each other within each step, as collectives do.
class JobGateOfRanksTest : public testing::Test {
 protected:
  static constexpr size_t kRanks = 3;

  JobGateOfRanksTest() : requests_(kRanks) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      gates_.push_back(std::make_unique<StepGate>(
          0, 1'000'000'000, &requests_[rank], [this, rank](const Shown& mine) {
            return meetings_.Meet(rank, mine);
          }));
    }
  }
  // Each in a process of its own, at about the same time.
  ~JobGateOfRanksTest() override {
    std::vector<std::thread> threads;
    for (std::unique_ptr<StepGate>& gate : gates_) {
      threads.emplace_back([&gate] { gate.reset(); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Runs until the gates end it. Once step `asked_at` has been begun, each rank
  // of `asked` is asked to end, one after the other.
  void Run(int64_t asked_at, const std::vector<size_t>& asked) {
    std::barrier<> step_barrier(kRanks);
    std::atomic<int64_t> reached{-1};
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        for (int64_t step = 0; gates_[rank]->Enter(step); ++step) {
          if (rank == 0) reached = step;
          step_barrier.arrive_and_wait();
        }
      });
    }
    // As a signal does, a request comes whatever the rank waits for.
    while (reached < asked_at) std::this_thread::yield();
    for (const size_t rank : asked) {
      requests_[rank] = 15;
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
  }

  void ExpectTheSameEnd(int64_t asked_at) const {
    EXPECT_GT(gates_[0]->end(), asked_at);
    for (const std::unique_ptr<StepGate>& gate : gates_) {
      EXPECT_EQ(gate->end(), gates_[0]->end());
      EXPECT_TRUE(gate->ended_early());
      EXPECT_EQ(gate->signal(), 15);
    }
  }

  Meetings meetings_{kRanks};
  std::vector<std::atomic<int>> requests_;
  std::vector<std::unique_ptr<StepGate>> gates_;
};

TEST_F(JobGateOfRanksTest, AllEndAfterTheSameStepIfOneIsAsked) {
  Run(/*asked_at=*/40, {1});
  ExpectTheSameEnd(40);
}

TEST_F(JobGateOfRanksTest, AllEndAfterTheSameStepIfAllAreAskedAtTheBegin) {
  Run(/*asked_at=*/0, {0, 1, 2});
  ExpectTheSameEnd(0);
}

TEST_F(JobGateOfRanksTest, AllEndAfterTheSameStepIfAllAreAskedLater) {
  Run(/*asked_at=*/200, {2, 0, 1});
  ExpectTheSameEnd(200);
}

TEST(JobGateTest, AllStepsAreTakenWhereNobodyAsksToEnd) {
  const std::atomic<int> request{0};
  StepGate gate(3, 5, &request,
                [](const Shown& mine) -> AllShown { return {{mine}}; });
  EXPECT_TRUE(gate.Enter(3));
  EXPECT_TRUE(gate.Enter(4));
  EXPECT_FALSE(gate.Enter(5));
  EXPECT_EQ(gate.end(), 5);
  EXPECT_FALSE(gate.ended_early());
  EXPECT_EQ(gate.signal(), 0);
}

TEST(JobGateTest, ARequestThatCannotBeSharedIsDropped) {
  const std::atomic<int> request{2};
  std::atomic<bool> met{false};
  StepGate gate(0, 3, &request, [&](const Shown& mine) -> AllShown {
    EXPECT_EQ(mine.signal, 2);
    met = true;
    return absl::AbortedError("a rank is lost");
  });
  EXPECT_TRUE(gate.Enter(0));
  while (!met) std::this_thread::yield();
  EXPECT_TRUE(gate.Enter(1));
  EXPECT_TRUE(gate.Enter(2));
  EXPECT_FALSE(gate.Enter(3));
  EXPECT_FALSE(gate.ended_early());
}

// The rank that is asked and the others hear of it; the second meeting, to
// which they show their steps, is late, and all begin anew.
TEST(JobGateTest, AMeetingThatIsLateIsTriedAgain) {
  const std::atomic<int> request{15};
  std::atomic<int> num_met{0};
  StepGate gate(0, 1'000'000'000, &request, [&](const Shown& mine) -> AllShown {
    const int number = num_met++;
    if (number == 0 || number == 2) {
      return absl::DeadlineExceededError("late");
    }
    return {{mine}};
  });
  int64_t step = 0;
  while (gate.Enter(step)) ++step;
  EXPECT_TRUE(gate.ended_early());
  EXPECT_EQ(num_met, 5);
}

TEST(JobGateTest, OneThatEndsDoesNotWaitForOthersWhoDoNot) {
  const std::atomic<int> request{0};
  StepGate gate(0, 3, &request, [](const Shown& mine) -> AllShown {
    return {{mine, Shown{}}};  // The other one is never over.
  });
  EXPECT_TRUE(gate.Enter(0));
}

TEST(JobGateTest, OneWhoseOthersAreLostEnds) {
  const std::atomic<int> request{0};
  Meetings meetings(2);
  std::atomic<bool> meets{false};
  StepGate gate(0, 3, &request, [&](const Shown& mine) {
    meets = true;
    return meetings.Meet(0, mine);
  });
  while (!meets) std::this_thread::yield();
  meetings.Fail();
}

}  // namespace
}  // namespace commsched::trainer

#include "comm/backend_rank.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/world.h"
#include "gtest/gtest.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

std::shared_ptr<World> MakeWorld() {
  WorldSpec spec;
  spec.size = 2;
  return World::Create(spec).value();
}

// Gets on as often as it is told to.
class Work final : public Pumped {
 public:
  bool Pump() override {
    EXPECT_FALSE(is_pumped_.exchange(true));
    num_pumped_.fetch_add(1);
    int left = num_left_.load();
    const bool got_on = left > 0;
    if (got_on) num_left_.fetch_sub(1);
    is_pumped_.store(false);
    return got_on;
  }
  int64_t NextWakeNs() const override { return wake_ns_.load(); }

  void Give(int num) { num_left_.fetch_add(num); }
  void WakeAt(int64_t ns) { wake_ns_.store(ns); }
  int num_left() const { return num_left_.load(); }
  int num_pumped() const { return num_pumped_.load(); }
  bool is_pumped() const { return is_pumped_.load(); }

 private:
  std::atomic<int> num_left_{0};
  std::atomic<int> num_pumped_{0};
  std::atomic<bool> is_pumped_{false};
  std::atomic<int64_t> wake_ns_{kNoDeadlineNs};
};

TEST(BackendRankTest, TheThreadPumpsWhatIsAttachedWhenThereIsNews) {
  const auto world = MakeWorld();
  BackendRank* const rank = world->Rank(0).value();
  EXPECT_EQ(world->Rank(0).value(), rank);
  EXPECT_NE(world->Rank(1).value(), rank);
  Work first, second;
  ASSERT_OK(rank->Attach(&first));
  ASSERT_OK(rank->Attach(&second));
  for (int round = 0; round < 100; ++round) {
    first.Give(3);
    second.Give(2);
    rank->parker()->Unpark();
    ASSERT_TRUE(test::Await(
        [&] { return first.num_left() == 0 && second.num_left() == 0; }));
  }
  rank->Detach(&first);
  const int pumped = first.num_pumped();
  second.Give(1);
  rank->parker()->Unpark();
  ASSERT_TRUE(test::Await([&] { return second.num_left() == 0; }));
  EXPECT_EQ(first.num_pumped(), pumped);
  rank->Detach(&second);
}

TEST(BackendRankTest, TheThreadSleepsNoLongerThanItIsTold) {
  const auto world = MakeWorld();
  BackendRank* const rank = world->Rank(0).value();
  Work work;
  work.WakeAt(SystemClock::Get().NowNs() + 1'000'000);
  ASSERT_OK(rank->Attach(&work));
  ASSERT_TRUE(test::Await([&] { return work.num_pumped() >= 2; }));
  rank->Detach(&work);
}

// Threads that want the turn get it from a thread that has work without end,
// and from one that sleeps.
TEST(BackendRankTest, OneAtATimeHasTheTurn) {
  const auto world = MakeWorld();
  BackendRank* const rank = world->Rank(0).value();
  Work busy;
  busy.Give(1 << 30);
  for (const bool is_busy : {true, false}) {
    Work idle;
    Work* const work = is_busy ? &busy : &idle;
    ASSERT_OK(rank->Attach(work));
    int num_inside = 0;  // Guarded by the turn.
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          BackendRank::Turn turn(rank);
          EXPECT_EQ(++num_inside, 1);
          EXPECT_FALSE(work->is_pumped());
          --num_inside;
          if (i % 10 == 0) turn.Sleep(SystemClock::Get().NowNs() + 10'000);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    rank->Detach(work);
  }
}

// Who sleeps with the turn does the thread's work.
TEST(BackendRankTest, WhoSleepsPumps) {
  const auto world = MakeWorld();
  BackendRank* const rank = world->Rank(0).value();
  Work work;
  ASSERT_OK(rank->Attach(&work));
  {
    BackendRank::Turn turn(rank);
    work.Give(3);
    for (int i = 0; i < 3; ++i) turn.Sleep(0);
    EXPECT_EQ(work.num_left(), 0);
  }
  rank->Detach(&work);
}

TEST(BackendRankTest, RanksOutsideOfTheWorldAreRefused) {
  const auto world = MakeWorld();
  EXPECT_THAT(world->Rank(2), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "rank 2 is not in 0..1"));
  EXPECT_THAT(world->Rank(-1),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank -1"));
}

}  // namespace
}  // namespace commsched

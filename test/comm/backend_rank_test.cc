#include "comm/backend_rank.h"

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "comm/world.h"
#include "commsched/plugin.h"
#include "device/host_device.h"
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
  bool HasWork() const override { return num_left_.load() != 0; }

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

// ---- Callers that wait ----

// A backend that sleeps by itself and does nothing else.
class SleepingBackend {
 public:
  explicit SleepingBackend(
      uint32_t capabilities = COMMSCHED_BACKEND_WAITS_BESIDE) {
    table_.struct_size = sizeof(table_);
    table_.capabilities = capabilities;
    table_.name = "sleeping";
    table_.rank_open = [](void* instance, const commsched_backend_rank_desc_t*,
                          void** out_rank, char*, uint64_t) {
      *out_rank = instance;
      return commsched_status_t{COMMSCHED_OK};
    };
    table_.rank_close = [](void*) {};
    table_.wait = [](void* rank, int64_t deadline_ns) {
      static_cast<SleepingBackend*>(rank)->Wait(deadline_ns);
    };
    table_.interrupt = [](void* rank) {
      static_cast<SleepingBackend*>(rank)->Interrupt();
    };
    BackendRank::Spec spec;
    spec.table = &table_;
    spec.instance = this;
    spec.device = &device_;
    rank_ = BackendRank::Open(spec).value();
  }

  BackendRank* rank() { return rank_.get(); }
  int num_interrupts() {
    MutexLock lock(&mu_);
    return num_interrupts_;
  }
  // In a sleep that no interrupt is about to end.
  bool IsAsleep() {
    MutexLock lock(&mu_);
    return waits_ && !interrupted_;
  }
  bool Waits() {
    MutexLock lock(&mu_);
    return waits_;
  }
  std::unique_ptr<Event> NewEvent() { return device_.CreateEvent(1).value(); }

 private:
  void Wait(int64_t deadline_ns) {
    MutexLock lock(&mu_);
    EXPECT_FALSE(waits_);
    waits_ = true;
    while (!interrupted_ && changed_.WaitUntil(&mu_, deadline_ns)) {
    }
    interrupted_ = false;
    waits_ = false;
  }
  void Interrupt() {
    MutexLock lock(&mu_);
    ++num_interrupts_;
    interrupted_ = true;
    changed_.SignalAll();
  }

  commsched_backend_t table_ = {};
  HostDevice device_;
  Mutex mu_;
  CondVar changed_;
  int num_interrupts_ ABSL_GUARDED_BY(mu_) = 0;
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
  bool waits_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<BackendRank> rank_;
};

// Completes the next generation when it is pumped and has something to do.
class Launches final : public Pumped {
 public:
  explicit Launches(Event* event) : event_(event) {}

  bool Pump() override {
    EXPECT_FALSE(alone_with_ != nullptr && alone_with_->Waits());
    if (num_begun_.load() == num_done_) return false;
    if (std::this_thread::get_id() == excluded_.load()) {
      if (throws_.load()) throw std::bad_alloc();
      return false;
    }
    by_ = std::this_thread::get_id();
    event_->Complete(++num_done_);
    return true;
  }
  int64_t NextWakeNs() const override { return kNoDeadlineNs; }
  bool HasWork() const override { return num_begun_.load() != num_done_; }

  uint64_t BeginOne() { return num_begun_.fetch_add(1) + 1; }
  // Who can no longer complete any.
  void Exclude(std::thread::id thread) { excluded_.store(thread); }
  // Who is excluded throws.
  void Throw() { throws_.store(true); }
  // Is not pumped while `backend` waits.
  void BeAloneWith(SleepingBackend* backend) { alone_with_ = backend; }
  std::thread::id by() const { return by_; }

 private:
  Event* const event_;
  std::atomic<uint64_t> num_begun_{0};
  std::atomic<std::thread::id> excluded_{std::thread::id()};
  std::atomic<bool> throws_{false};
  SleepingBackend* alone_with_ = nullptr;
  uint64_t num_done_ = 0;  // Guarded by the turn, as is the next.
  std::thread::id by_;
};

TEST(BackendRankTest, ACallerThatWaitsPumpsInPlaceOfAThreadThatSleeps) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  ASSERT_TRUE(test::Await([&] { return backend.IsAsleep(); }));
  const int interrupts = backend.num_interrupts();
  backend.rank()->Await(event.get(), launches.BeginOne());
  EXPECT_EQ(launches.by(), std::this_thread::get_id());
  EXPECT_EQ(backend.num_interrupts(), interrupts);
  backend.rank()->Detach(&launches);
}

TEST(BackendRankTest, AfterWaitsThatLeftNothingTheThreadRests) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  // A caller that loses its core for a millisecond is not prompt: a machine
  // that is busy needs several tries.
  const auto begins_alone = [&] {
    for (int i = 0; i < 100; ++i) {
      const uint64_t generation = launches.BeginOne();
      backend.rank()->Begin();
      backend.rank()->Await(event.get(), generation);
    }
    const int interrupts = backend.num_interrupts();
    const uint64_t generation = launches.BeginOne();
    backend.rank()->Begin();
    const bool is_done = event->IsComplete(generation);
    backend.rank()->Await(event.get(), generation);
    return is_done && launches.by() == std::this_thread::get_id() &&
           backend.num_interrupts() == interrupts;
  };
  EXPECT_TRUE(test::Await(begins_alone));
  backend.rank()->Detach(&launches);
}

// Also while it rests.
TEST(BackendRankTest, WhatIsBegunThereTheThreadDoes) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 100; ++i) {
      const uint64_t generation = launches.BeginOne();
      backend.rank()->Begin();
      backend.rank()->Await(event.get(), generation);
    }
    const uint64_t generation = launches.BeginOne();
    backend.rank()->BeginThere();
    ASSERT_TRUE(test::Await([&] { return event->IsComplete(generation); }));
    EXPECT_NE(launches.by(), std::this_thread::get_id());
  }
  backend.rank()->Detach(&launches);
}

// What a caller cannot complete, as if it took long, goes to the thread,
// whether that sleeps or rests.
TEST(BackendRankTest, AWaitThatIsNotOverSoonIsHandedToTheThread) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  for (const int prompt_waits : {0, 100}) {
    for (int i = 0; i < prompt_waits; ++i) {
      const uint64_t generation = launches.BeginOne();
      backend.rank()->Begin();
      backend.rank()->Await(event.get(), generation);
    }
    launches.Exclude(std::this_thread::get_id());
    const uint64_t generation = launches.BeginOne();
    backend.rank()->Begin();
    backend.rank()->Await(event.get(), generation);
    EXPECT_TRUE(event->IsComplete(generation));
    launches.Exclude({});
  }
  backend.rank()->Detach(&launches);
}

// The thread does not rest for ever, whatever the caller does.
TEST(BackendRankTest, WhatNobodyWaitsForIsDoneByTheThread) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  for (int round = 0; round < 20; ++round) {
    launches.Exclude({});
    for (int i = 0; i < 20; ++i) {
      const uint64_t generation = launches.BeginOne();
      backend.rank()->Begin();
      backend.rank()->Await(event.get(), generation);
    }
    launches.Exclude(std::this_thread::get_id());
    const uint64_t generation = launches.BeginOne();
    backend.rank()->Begin();
    ASSERT_TRUE(test::Await([&] { return event->IsComplete(generation); }));
  }
  backend.rank()->Detach(&launches);
}

// A caller computes in between, and waits for nothing.
TEST(BackendRankTest, BeginningWithoutAWaitDoesNotProlongTheRest) {
  constexpr int64_t kBetweenNs = 300'000;
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  for (int i = 0; i < 20; ++i) {
    const uint64_t generation = launches.BeginOne();
    backend.rank()->Begin();
    backend.rank()->Await(event.get(), generation);
  }
  launches.Exclude(std::this_thread::get_id());
  const uint64_t generation = launches.BeginOne();
  EXPECT_TRUE(test::Await([&] {
    backend.rank()->Begin();
    const int64_t until_ns = SystemClock::Get().NowNs() + kBetweenNs;
    while (SystemClock::Get().NowNs() < until_ns) {
    }
    return event->IsComplete(generation);
  }));
  backend.rank()->Detach(&launches);
}

TEST(BackendRankTest, AnExceptionOfWhatIsPumpedGivesTheTurn) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  launches.Throw();
  ASSERT_OK(backend.rank()->Attach(&launches));
  // Not each try has the turn before the thread.
  for (const bool waits : {false, true}) {
    EXPECT_TRUE(test::Await([&] {
      launches.Exclude({});
      for (int i = 0; i < 20; ++i) {
        const uint64_t generation = launches.BeginOne();
        backend.rank()->Begin();
        backend.rank()->Await(event.get(), generation);
      }
      launches.Exclude(std::this_thread::get_id());
      const uint64_t generation = launches.BeginOne();
      bool has_thrown = false;
      try {
        if (waits) {
          backend.rank()->Await(event.get(), generation);
        } else {
          backend.rank()->Begin();
        }
      } catch (const std::bad_alloc&) {
        has_thrown = true;
      }
      event->Synchronize(generation);
      return has_thrown;
    }));
    const int64_t soon_ns = SystemClock::Get().NowNs() + 5'000'000'000;
    ASSERT_TRUE(backend.rank()->LookBy(soon_ns, [] {}));
  }
  backend.rank()->Detach(&launches);
}

// As plugins of 0.1 were made.
TEST(BackendRankTest, ABackendThatDoesNotSayOtherwiseWaitsAlone) {
  SleepingBackend backend(/*capabilities=*/0);
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  launches.BeAloneWith(&backend);
  ASSERT_OK(backend.rank()->Attach(&launches));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const uint64_t generation = launches.BeginOne();
        backend.rank()->Begin();
        backend.rank()->Await(event.get(), generation);
        const BackendRank::Turn turn(backend.rank());
        EXPECT_FALSE(backend.Waits());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  backend.rank()->Detach(&launches);
}

// Callers of all sorts at once, on a rank whose thread sleeps, rests and works.
TEST(BackendRankTest, CallersThatWaitAndThoseThatTakeTheTurnGetOn) {
  SleepingBackend backend;
  const auto event = backend.NewEvent();
  Launches launches(event.get());
  ASSERT_OK(backend.rank()->Attach(&launches));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const uint64_t generation = launches.BeginOne();
        backend.rank()->Begin();
        backend.rank()->Await(event.get(), generation);
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 200; ++i) {
      BackendRank::Turn turn(backend.rank());
      if (i % 4 == 0) turn.Sleep(SystemClock::Get().NowNs() + 10'000);
    }
  });
  for (std::thread& thread : threads) thread.join();
  backend.rank()->Detach(&launches);
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

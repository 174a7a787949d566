// What "ucx" has begun to send and is not out yet is bounded, for all
// communicators of a process together. No communicator waits for another one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"
#include "test/support/property.h"

namespace commsched {
namespace {

// So much is sent once its receive has been posted.
constexpr uint64_t kMessageBytes = 48 << 10;
constexpr uint64_t kWindowMessages = 3;

// A rank's launches on a communicator, oldest first.
class Launches {
 public:
  static constexpr uint32_t kMost = 4;

  absl::Status Open(World* world, CommSpec spec, int rank) {
    spec.max_in_flight = kMost;
    const absl::Status status = comm_.Create(world, std::move(spec), rank);
    return status.ok() ? comm_.AwaitReady() : status;
  }
  absl::Status Launch(const commsched_launch_t& launch) {
    return comm_.Launch(launch, num_launched_++);
  }
  // Polls the oldest one that is not done.
  absl::Status Poll() {
    if (AllAreDone()) return absl::OkStatus();
    const auto polled = comm_.Poll(num_done_);
    if (polled.ok() && polled->done == 1) ++num_done_;
    return polled.status();
  }
  uint32_t num_launched() const { return num_launched_; }
  bool AllAreDone() const { return num_done_ == num_launched_; }

 private:
  CommDriver comm_;
  uint32_t num_launched_ = 0;
  uint32_t num_done_ = 0;
};

// One array, of which all ranks have the same number of elements.
class Array {
 public:
  Array(commsched_collective_t kind, std::vector<int32_t> input)
      : values_(std::move(input)) {
    member_.input = member_.output = values_.data();
    member_.count = values_.size();
    launch_ = LaunchOf(kind, COMMSCHED_I32, COMMSCHED_SUM, /*root=*/0,
                       /*deterministic=*/0, /*num_members=*/1, &member_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const commsched_launch_t& launch() const { return launch_; }
  const std::vector<int32_t>& values() const { return values_; }

 private:
  std::vector<int32_t> values_;
  commsched_member_t member_ = {};
  commsched_launch_t launch_ = {};
};

// ---- One communicator's window is the other's ----

// One thread is all ranks, so that each gets on when the test says so. Rank 0
// broadcasts, a message to each other member.
class WindowTest : public BackendTest {
 protected:
  // The window is full of what rank 0 has for rank 1 on another communicator,
  // and rank 1 does not take. Then rank 0 launches two on that of all.
  void SetUp() override {
    ASSERT_OK(OnRanksAll([&](int rank) -> absl::Status {
      absl::Status status;
      if (rank < 2) {
        status =
            At(&pair_, rank)
                .Open(WorldOf(rank), {.id = "pair", .ranks = {0, 1}}, rank);
      }
      if (!status.ok()) return status;
      return At(&all_, rank).Open(WorldOf(rank), {.id = "all"}, rank);
    }));
    for (uint64_t i = 0; i < kWindowMessages; ++i) Broadcast(&pair_, 0);
    for (int i = 0; i < 2; ++i) Broadcast(&all_, 0);
  }

  // All end, once all ranks take part.
  void TearDown() override {
    for (const int rank : {0, 1, 2}) {
      while (rank < 2 && At(&pair_, rank).num_launched() < kWindowMessages) {
        Broadcast(&pair_, rank);
      }
      while (At(&all_, rank).num_launched() < 2) Broadcast(&all_, rank);
    }
    EXPECT_TRUE(test::Await([&] {
      PollAll();
      bool all_are_done = true;
      for (Ranks* comm : {&pair_, &all_}) {
        for (Launches& launches : *comm) all_are_done &= launches.AllAreDone();
      }
      return all_are_done;
    }));
  }

  using Ranks = std::array<Launches, 3>;
  static Launches& At(Ranks* ranks, int rank) {
    return (*ranks)[static_cast<size_t>(rank)];
  }

  // Its part of the next one. Returns what this rank has of it.
  const Array& Broadcast(Ranks* comm, int rank) {
    const std::vector<int32_t> input(kMessageBytes / sizeof(int32_t),
                                     rank == 0 ? 7 : 0);
    arrays_.emplace_back(COMMSCHED_BROADCAST, input);
    EXPECT_OK(At(comm, rank).Launch(arrays_.back().launch()));
    return arrays_.back();
  }
  static bool HasCome(const Array& array) {
    return array.values().front() == 7 && array.values().back() == 7;
  }
  void PollAll() {
    for (Ranks* comm : {&pair_, &all_}) {
      for (Launches& launches : *comm) EXPECT_OK(launches.Poll());
    }
  }
  bool AwaitCome(const Array& array) {
    return test::Await([&] {
      PollAll();
      return HasCome(array);
    });
  }
  // What is going to come comes after far fewer looks.
  bool ComesSoon(const Array& array) {
    for (int i = 0; i < 1000; ++i) PollAll();
    return HasCome(array);
  }
  std::deque<Array> arrays_;
  Ranks pair_, all_;
};

TEST_P(WindowTest, TheOldestLaunchOfACommunicatorIsNotHeldBack) {
  EXPECT_TRUE(AwaitCome(Broadcast(&all_, 1)));
}

TEST_P(WindowTest, LaterOnesAreHeldBackByWhatOtherCommunicatorsSend) {
  const Array& first = Broadcast(&all_, 1);
  const Array& second = Broadcast(&all_, 1);
  EXPECT_TRUE(AwaitCome(first));
  EXPECT_FALSE(ComesSoon(second));
  // Once the first one is over, the second is the oldest.
  Broadcast(&all_, 2);
  EXPECT_TRUE(AwaitCome(second));
}

TEST_P(WindowTest, TheyGoOnceAnotherCommunicatorHasMadeRoom) {
  Broadcast(&all_, 1);
  const Array& second = Broadcast(&all_, 1);
  EXPECT_FALSE(ComesSoon(second));
  for (uint64_t i = 0; i < kWindowMessages; ++i) Broadcast(&pair_, 1);
  EXPECT_TRUE(AwaitCome(second));
}

// ---- All orders ----

// All launches of a rank: each communicator's in their order, communicators in
// any order, another on each rank. Launches are larger than the window, and one
// rank begins none before all that it has begun are done.
class OrderTest : public BackendTest {
 protected:
  static constexpr int kMostCount = 60'000;

  static absl::Status RunRank(World* world, int rank, uint64_t seed) {
    const std::vector<std::vector<int32_t>> groups = {
        {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {0, 1, 2}};
    std::mt19937_64 job(seed);  // The same on all ranks.
    std::mt19937_64 own(seed + static_cast<uint64_t>(rank) + 1);
    const bool is_patient = static_cast<int>(job() % 3) == rank;
    std::vector<std::unique_ptr<Group>> mine;
    for (size_t g = 0; g < groups.size(); ++g) {
      const bool is_member =
          std::count(groups[g].begin(), groups[g].end(), rank) != 0;
      auto group = std::make_unique<Group>(groups[g], rank, &job);
      if (!is_member) continue;
      const absl::Status status = group->launches.Open(
          world, {.id = absl::StrCat(seed, " ", g), .ranks = groups[g]}, rank);
      if (!status.ok()) return status;
      mine.push_back(std::move(group));
    }
    return RunAll(&mine, is_patient, &own);
  }

 private:
  struct Group {
    Group(const std::vector<int32_t>& ranks, int rank, std::mt19937_64* job)
        : size(static_cast<int32_t>(ranks.size())),
          sum(std::accumulate(ranks.begin(), ranks.end(), 0)) {
      for (uint32_t i = 0; i < Launches::kMost; ++i) {
        std::vector<int32_t> input(1 + (*job)() % kMostCount);
        std::iota(input.begin(), input.end(), rank);
        arrays.emplace_back(COMMSCHED_ALL_REDUCE, std::move(input));
      }
    }
    bool IsRight() const {
      for (const Array& array : arrays) {
        for (size_t i = 0; i < array.values().size(); ++i) {
          if (array.values()[i] != size * static_cast<int32_t>(i) + sum) {
            return false;
          }
        }
      }
      return true;
    }

    const int32_t size;
    const int32_t sum;  // Of its ranks.
    std::deque<Array> arrays;
    Launches launches;
  };
  using Groups = std::vector<std::unique_ptr<Group>>;

  static absl::Status Await(Groups* groups) {
    absl::Status failure;
    const bool ended = test::Await([&] {
      bool all_are_done = true;
      for (const auto& group : *groups) {
        failure.Update(group->launches.Poll());
        all_are_done &= group->launches.AllAreDone();
      }
      return all_are_done || !failure.ok();
    });
    return ended ? failure : absl::DeadlineExceededError("launches hang");
  }

  static absl::Status RunAll(Groups* groups, bool is_patient,
                             std::mt19937_64* random) {
    for (size_t left = groups->size() * Launches::kMost; left != 0;) {
      Group& group = *(*groups)[(*random)() % groups->size()];
      const uint32_t number = group.launches.num_launched();
      if (number == Launches::kMost) continue;
      --left;
      absl::Status status =
          group.launches.Launch(group.arrays[number].launch());
      if (status.ok() && is_patient) status = Await(groups);
      if (!status.ok()) return status;
    }
    const absl::Status status = Await(groups);
    for (const auto& group : *groups) {
      if (status.ok() && !group->IsRight()) {
        return absl::InternalError("a sum is wrong");
      }
    }
    return status;
  }
};

TEST_P(OrderTest, LaunchesOfCommunicatorsInAnyOrderEnd) {
  for (int i = 0; i < test::PropertyCases(10); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    ASSERT_OK(OnRanksAll(
        [&](int rank) { return RunRank(WorldOf(rank), rank, seed); }));
  }
}

// Those of "ucx" for three ranks, with a small window.
std::vector<BackendCase> SmallWindows(const std::vector<std::string>& configs) {
  std::vector<BackendCase> cases;
  for (const BackendCase& one : AllBackends()) {
    if (one.name != "ucx_n3") continue;
    for (const std::string& config : configs) {
      BackendCase small = one;
      small.name = absl::StrCat("ucx_window", cases.size());
      small.config = absl::StrCat(
          config, ";window_bytes=", kWindowMessages * kMessageBytes);
      cases.push_back(small);
    }
  }
  return cases;
}

COMMSCHED_INSTANTIATE_CONFORMANCE(
    WindowTest, SmallWindows({"local=shm;algorithm=exchange,auto",
                              "ranks_per_host=1;chunk_bytes=4096"}));
COMMSCHED_INSTANTIATE_CONFORMANCE(OrderTest,
                                  SmallWindows({"local=shm",
                                                "local=net;tls=tcp,self",
                                                "ranks_per_host=2;local=shm",
                                                "ranks_per_host=1;"
                                                "chunk_bytes=4096"}));
// Without UCX there is none such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WindowTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OrderTest);

}  // namespace
}  // namespace commsched

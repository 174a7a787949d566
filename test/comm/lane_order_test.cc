#include "comm/lane_order.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using testing::HasSubstr;

constexpr int64_t kSecond = int64_t{1000} * 1000 * 1000;

// A lane of each rank, and queues on it.
class LaneOrderTest : public testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<LaneOrder> lane;
    std::vector<std::unique_ptr<LaneQueue>> queues;
  };

  // Of `num_ranks` ranks, each of `names` being a queue of its own owner on all
  // of them.
  void Make(int num_ranks, const std::vector<std::string>& names) {
    board_ = std::make_shared<OrderBoard>();
    ranks_.clear();
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks_.push_back({std::make_shared<LaneOrder>(3), {}});
      for (const std::string& name : names) Add(rank, name, All(), &name);
    }
  }
  std::vector<int> All() const { return {0, 1, 2, 3}; }
  void Add(int rank, const std::string& name, std::vector<int> members,
           const void* owner) {
    LaneQueueSpec spec;
    spec.id = name;
    spec.name = absl::StrCat("'", name, "'");
    spec.owner = owner;
    spec.members = std::move(members);
    spec.rank = rank;
    spec.board = board_;
    ranks_[static_cast<size_t>(rank)].queues.push_back(
        ranks_[static_cast<size_t>(rank)].lane->Add(std::move(spec)));
  }
  void Note(int rank, size_t queue, int times = 1) {
    while (times-- > 0) ranks_[static_cast<size_t>(rank)].queues[queue]->Note();
  }
  void Look(int rank, int64_t now_ns) {
    ranks_[static_cast<size_t>(rank)].lane->Look(now_ns, kSecond);
  }
  // All ranks look until all that is known has been said.
  void LookAll() {
    for (int i = 0; i < 3; ++i) {
      now_ns_ += kSecond;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
        Look(rank, now_ns_);
      }
    }
  }
  std::string Difference(int rank) {
    return ranks_[static_cast<size_t>(rank)].lane->Difference();
  }

  std::shared_ptr<OrderBoard> board_;
  std::vector<Rank> ranks_;
  int64_t now_ns_ = kSecond;
};

TEST_F(LaneOrderTest, OneOrderIsNoDifference) {
  Make(2, {"dp", "tp"});
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 300; ++i) Note(rank, static_cast<size_t>(i % 3 == 0));
  }
  LookAll();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Difference(rank), "");
}

TEST_F(LaneOrderTest, AnotherOrderIsNamedOnBothRanks) {
  Make(2, {"dp", "tp"});
  Note(0, 0);
  Note(0, 1);
  Note(1, 1);
  Note(1, 0);
  LookAll();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Difference(rank),
              "on lane 3 of its device the job's rank 0 has launch 1 of 'dp' "
              "before launch 1 of 'tp', the job's rank 1 has launch 1 of 'tp' "
              "before launch 1 of 'dp'");
  }
}

// Each host waits for what it has launched.
TEST_F(LaneOrderTest, OrdersDifferBeforeThereIsASecondLaunch) {
  Make(2, {"dp", "tp"});
  Note(0, 0);
  Note(1, 1);
  LookAll();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(Difference(rank), HasSubstr("rank 0 has launch 1 of 'dp'"));
  }
}

TEST_F(LaneOrderTest, ADifferenceIsFoundWhateverWasLaunchedBefore) {
  Make(2, {"dp", "tp"});
  const int many = 3 * static_cast<int>(LaneOrder::kRing) + 17;
  for (int rank = 0; rank < 2; ++rank) {
    Note(rank, 0, many);
    LookAll();
    Note(rank, rank == 0 ? 0 : 1);
  }
  LookAll();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(Difference(rank),
                HasSubstr(absl::StrCat("rank 0 has launch ", many + 1,
                                       " of 'dp' before launch 1 of 'tp'")));
  }
}

// The first queue is older than what there is to compare.
TEST_F(LaneOrderTest, AQueueThatComesLaterIsComparedFromThenOn) {
  Make(2, {"dp"});
  for (int rank = 0; rank < 2; ++rank) Note(rank, 0, 100);
  for (int rank = 0; rank < 2; ++rank) Add(rank, "tp", All(), this);
  Note(0, 0);
  Note(1, 1);
  LookAll();
  EXPECT_THAT(Difference(0), HasSubstr("launch 101 of 'dp'"));
}

TEST_F(LaneOrderTest, OnlyQueuesWithTwoRanksInCommonAreCompared) {
  Make(2, {});
  for (int rank = 0; rank < 2; ++rank) {
    const std::string of_rank = absl::StrCat("dp of ", rank);
    Add(rank, "tp", All(), this);
    Add(rank, of_rank, {rank, rank + 2}, &ranks_);
  }
  Note(0, 0);
  Note(0, 1);
  Note(1, 1);
  Note(1, 0);
  LookAll();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Difference(rank), "");
}

TEST_F(LaneOrderTest, QueuesOfOneOwnerAreNotCompared) {
  Make(2, {});
  for (int rank = 0; rank < 2; ++rank) {
    for (const char* name : {"dp", "tp"}) Add(rank, name, All(), this);
  }
  Note(0, 0);
  Note(1, 1);
  LookAll();
  EXPECT_EQ(Difference(0), "");
}

TEST_F(LaneOrderTest, AQueueThatIsGoneIsNotCompared) {
  Make(2, {"dp", "tp"});
  Note(0, 0);
  Note(1, 1);
  ranks_[0].queues.pop_back();
  LookAll();
  EXPECT_EQ(Difference(0), "");
}

// What is said is bounded: once per block, and per second.
TEST_F(LaneOrderTest, WhatWasSaidIsNotSaidAgainWithinASecond) {
  Make(1, {"dp", "tp"});
  int num_said = 0;
  board_->SayBy([&](const OrderSlice&) { ++num_said; });
  Note(0, 0);
  Look(0, 10 * kSecond);
  EXPECT_EQ(num_said, 1);
  Note(0, 0);
  Look(0, 11 * kSecond - 1);
  EXPECT_EQ(num_said, 1);
  Look(0, 11 * kSecond);
  EXPECT_EQ(num_said, 2);
  Look(0, 15 * kSecond);
  EXPECT_EQ(num_said, 2) << "nothing was launched";
  Note(0, 0, static_cast<int>(OrderSlice::kBlock));
  Look(0, 15 * kSecond + 1);
  EXPECT_EQ(num_said, 3);
  EXPECT_EQ(num_said, 3);
}

// Ranks of any pace, some of which look too late, or while others launch.
TEST_F(LaneOrderTest, RandomOrdersDifferIfAndOnlyIfTheyDo) {
  const int cases = test::PropertyCases(300);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const size_t queues = 2 + random() % 3;
    const std::vector<std::string> names = {"a", "b", "c", "d"};
    Make(2, {names.begin(), names.begin() + static_cast<long>(queues)});
    std::vector<size_t> order(1 + random() % 4000);
    for (size_t& each : order) each = random() % queues;
    // The last launches, which nobody can have overtaken.
    std::vector<size_t> other = order;
    const bool differs = order.size() > 8 && random() % 2 == 0;
    if (differs) {
      const size_t at = order.size() - 2;
      order[at] = 0;
      order[at + 1] = 1;
      other[at] = 1;
      other[at + 1] = 0;
    }
    size_t launched[2] = {};
    while (launched[0] < order.size() || launched[1] < order.size()) {
      const size_t rank = random() % 2;
      for (size_t n = random() % 1500; n > 0; --n) {
        if (launched[rank] >= order.size()) break;
        const size_t queue = (rank == 0 ? order : other)[launched[rank]++];
        Note(static_cast<int>(rank), queue);
        // Often enough at the end.
        if (launched[rank] + 8 > order.size()) {
          Look(static_cast<int>(rank), now_ns_ += kSecond);
        }
      }
      if (random() % 3 != 0) Look(static_cast<int>(rank), now_ns_ += kSecond);
    }
    LookAll();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(Difference(rank).empty(), !differs) << Difference(rank);
    }
  }
}

// Who launches is not held up by who looks, and nothing is made up.
TEST_F(LaneOrderTest, LooksBesideLaunchesFindNothingThatIsNotThere) {
  Make(2, {"dp", "tp"});
  std::atomic<bool> is_over{false};
  std::thread looks([&] {
    for (int64_t now_ns = 0; !is_over; now_ns += kSecond) {
      for (int rank = 0; rank < 2; ++rank) Look(rank, now_ns);
    }
  });
  for (int i = 0; i < 200000; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      Note(rank, static_cast<size_t>(i % 7 < 3));
    }
  }
  is_over = true;
  looks.join();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Difference(rank), "");
}

}  // namespace
}  // namespace commsched

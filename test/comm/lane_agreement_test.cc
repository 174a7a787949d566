#include "comm/lane_agreement.h"

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/device_lanes.h"
#include "comm/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/exec/logged_device.h"
#include "test/support/property.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::LoggedDevice;
using testing::ElementsAre;

constexpr int64_t kTimeoutNs = int64_t{20} * 1000 * 1000 * 1000;
using Numbers = std::vector<uint32_t>;
using Lanes = std::vector<std::shared_ptr<DeviceLane>>;

std::vector<Numbers> Assign(const std::vector<ShownLanes>& ranks) {
  return AssignLanes(ranks);
}

TEST(AssignLanesTest, AKeyHasOneNumberOnAllRanks) {
  EXPECT_THAT(Assign({{4, {1}, {{{"dp"}}}}, {4, {0, 1}, {{{"dp"}}}}}),
              ElementsAre(Numbers{2}, Numbers{2}));
}

TEST(AssignLanesTest, WhatIsBorrowedStaysWhereItIs) {
  EXPECT_THAT(Assign({{4, {0, 1}, {{{"dp"}, 1}, {{"tp"}}}},
                      {4, {}, {{{"dp"}}, {{"tp"}}}}}),
              ElementsAre(Numbers{1, 0}, Numbers{1, 0}));
}

TEST(AssignLanesTest, KeysOfARankAreApart) {
  EXPECT_THAT(
      AssignLanes({{1, {}, {{{"a"}}, {{"b"}}, {{"c"}}}}, {1, {}, {{{"c"}}}}}),
      ElementsAre(Numbers{0, 1, 2}, Numbers{2}));
}

// The rank where most borrow counts, and then all of them.
TEST(AssignLanesTest, TheFewestShareWhereAllAreBorrowed) {
  EXPECT_THAT(Assign({{3, {1, 2, 1}, {{{"dp"}}}},
                      {3, {3, 1, 1}, {{{"dp"}}}},
                      {3, {1, 1, 2}, {{{"tp"}}}}}),
              ElementsAre(Numbers{2}, Numbers{2}, Numbers{0}));
}

TEST(AssignLanesTest, OneNumberIsThatOfAllThatHaveANameInCommon) {
  EXPECT_THAT(Assign({{4, {1}, {{{"dp", "tp"}}}},
                      {4, {}, {{{"dp"}}, {{"pp"}}}},
                      {4, {}, {{{"tp"}}}}}),
              ElementsAre(Numbers{1}, Numbers{1, 0}, Numbers{1}));
}

TEST(ShownLanesTest, WhatIsShownIsRead) {
  const ShownLanes shown = {4, {0, 3}, {{{"dp", "tp"}, 2}, {{"pp"}, -1}}};
  ASSERT_OK_AND_ASSIGN(const ShownLanes read,
                       ShownLanes::Decode(shown.Encode()));
  EXPECT_EQ(read.most, 4u);
  EXPECT_EQ(read.others, (Numbers{0, 3}));
  ASSERT_EQ(read.keys.size(), 2u);
  EXPECT_THAT(read.keys[0].names, ElementsAre("dp", "tp"));
  EXPECT_EQ(read.keys[0].number, 2);
  EXPECT_EQ(read.keys[1].number, -1);
}

TEST(ShownLanesTest, WhatAnybodyMayHaveSentIsChecked) {
  const std::string whole = ShownLanes{4, {0, 3}, {{{"dp", "tp"}, 2}}}.Encode();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(ShownLanes::Decode(whole.substr(0, bytes)).ok());
  }
  EXPECT_FALSE(
      ShownLanes::Decode(ShownLanes{4, {}, {{{"dp"}, 99999}}}.Encode()).ok());
}

// Ranks of a world on devices of their own, on which others have borrowed.
class BorrowSameLanesTest : public testing::Test {
 protected:
  explicit BorrowSameLanesTest() {
    WorldSpec spec;
    spec.size = kRanks;
    for (int rank = 0; rank < kRanks; ++rank) {
      devices_.push_back(std::make_shared<LoggedDevice>());
      spec.devices.push_back(devices_.back());
    }
    world_ = World::Create(spec).value();
  }
  LaneKey Key(const std::string& axes, uint32_t plan_lane = 0) const {
    return {.world = world_.get(), .axes = axes, .plan_lane = plan_lane};
  }
  // By rank, the lanes of the keys that it has.
  std::vector<absl::StatusOr<Lanes>> Borrow(
      const std::vector<std::vector<LaneKey>>& keys) {
    std::vector<absl::StatusOr<Lanes>> lanes(kRanks);
    const std::string meeting = absl::StrCat("meeting ", num_meetings_++);
    (void)RunRanks(kRanks, [&](int rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank);
      lanes[r] =
          BorrowSameLanes(world_.get(), rank, meeting, keys[r], kTimeoutNs);
      return lanes[r].status();
    });
    return lanes;
  }

  static constexpr int kRanks = 2;
  std::vector<std::shared_ptr<LoggedDevice>> devices_;
  std::shared_ptr<World> world_;
  int num_meetings_ = 0;
};

TEST_F(BorrowSameLanesTest, ALaneHasOneNumberOnAllRanks) {
  // On one rank only.
  ASSERT_OK_AND_ASSIGN(const Lanes kept,
                       world_->BorrowLanes(0, {Key("other", 1)}));
  EXPECT_EQ(kept[0]->number(), 0);
  const auto lanes = Borrow({{Key("dp")}, {Key("dp"), Key("tp")}});
  for (const auto& of_rank : lanes) {
    ASSERT_OK(of_rank.status());
    EXPECT_EQ((*of_rank)[0]->number(), 1);
  }
  EXPECT_EQ((*lanes[1])[1]->number(), 0);
  // Whoever asks again gets the same.
  const auto again = Borrow({{Key("dp")}, {Key("dp")}});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ((*again[rank])[0], (*lanes[rank])[0]);
  }
}

// In the order of the members, which need not be that of ranks.
TEST_F(BorrowSameLanesTest, SomeRanksAgreeAmongThemselves) {
  ASSERT_OK_AND_ASSIGN(const Lanes kept,
                       world_->BorrowLanes(0, {Key("other", 1)}));
  const auto borrow = [&](int rank, const std::vector<int>& members,
                          const std::string& axis) {
    return BorrowSameLanesAmong(world_.get(), rank, members, axis, {Key(axis)},
                                kTimeoutNs);
  };
  std::vector<absl::StatusOr<Lanes>> lanes(kRanks);
  (void)RunRanks(kRanks, [&](int rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank);
    lanes[r] = borrow(rank, {1, 0}, "dp");
    return lanes[r].status();
  });
  for (const auto& of_rank : lanes) {
    ASSERT_OK(of_rank.status());
    EXPECT_EQ((*of_rank)[0]->number(), 1);
  }
  // Of one rank, which nobody else has to come to.
  ASSERT_OK_AND_ASSIGN(const Lanes alone, borrow(1, {1}, "tp"));
  EXPECT_EQ(alone[0]->number(), 0);
  // One that fails ends the wait of the others.
  devices_[1]->failure = absl::ResourceExhaustedError("no stream is left");
  for (const absl::Status& status : RunRanks(kRanks, [&](int rank) {
         return borrow(rank, {0, 1}, "pp").status();
       })) {
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("no stream is left"));
  }
}

TEST_F(BorrowSameLanesTest, ARankThatCannotMakeALaneEndsTheWaitOfTheOthers) {
  devices_[1]->failure = absl::ResourceExhaustedError("no stream is left");
  const auto lanes = Borrow({{Key("dp")}, {Key("dp")}});
  for (const auto& of_rank : lanes) {
    EXPECT_THAT(std::string(of_rank.status().message()),
                testing::HasSubstr("no stream is left"));
  }
}

// Whatever others have borrowed where.
TEST(AssignLanesTest, RandomKeysHaveOneNumberOnAllRanks) {
  const int cases = test::PropertyCases(500);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    std::vector<ShownLanes> ranks(1 + random() % 6);
    for (ShownLanes& rank : ranks) {
      rank.most = 1 + static_cast<uint32_t>(random() % 8);
      rank.others.resize(random() % 8);
      for (uint32_t& each : rank.others) {
        each = static_cast<uint32_t>(random() % 3);
      }
      for (const char* name : {"a", "b", "c", "d"}) {
        if (random() % 2 == 0) rank.keys.push_back({{name}, -1});
      }
    }
    const auto numbers = AssignLanes(ranks);
    std::vector<std::pair<std::string, uint32_t>> seen;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::set<uint32_t> own;
      for (size_t k = 0; k < ranks[rank].keys.size(); ++k) {
        own.insert(numbers[rank][k]);
        seen.emplace_back(ranks[rank].keys[k].names[0], numbers[rank][k]);
      }
      EXPECT_EQ(own.size(), ranks[rank].keys.size());
    }
    for (const auto& [name, number] : seen) {
      for (const auto& [other, its] : seen) {
        if (name == other) {
          EXPECT_EQ(number, its);
        }
      }
    }
  }
}

}  // namespace
}  // namespace commsched

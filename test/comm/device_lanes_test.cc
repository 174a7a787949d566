#include "comm/device_lanes.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/exec/logged_device.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::LoggedDevice;
using Lanes = std::vector<std::shared_ptr<DeviceLane>>;

class DeviceLanesTest : public testing::Test {
 protected:
  static LaneKey Key(const std::string& axes, uint32_t plan_lane = 0) {
    return {.world = nullptr, .axes = axes, .plan_lane = plan_lane};
  }
  Lanes Borrow(const std::vector<LaneKey>& keys) {
    return lanes_.Borrow(device_, budget_, keys).value();
  }
  std::shared_ptr<DeviceLane> BorrowOne(const std::string& axes) {
    return Borrow({Key(axes)})[0];
  }
  // A lane for each of as many axes as get one alone.
  Lanes BorrowAll() {
    Lanes all;
    for (size_t i = 0; i < kLanes; ++i) {
      all.push_back(BorrowOne(absl::StrCat("axis ", i)));
    }
    return all;
  }

  const std::shared_ptr<LoggedDevice> device_ =
      std::make_shared<LoggedDevice>();
  // Room for so many.
  static constexpr uint32_t kLanes = 3;
  LaneBudget budget_ = {.total = 30, .num_lanes = kLanes};
  DeviceLanes lanes_;
};

TEST_F(DeviceLanesTest, WhoAsksByTheSameKeyGetsTheSameLane) {
  const auto first = BorrowOne("dp");
  const auto second = BorrowOne("dp");
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->turn(), second->turn());
  EXPECT_EQ(device_->num_streams, 1);
}

TEST_F(DeviceLanesTest, AKeyIsWorldAxesAndLaneOfThePlan) {
  const int worlds[2] = {};
  const Lanes lanes = Borrow({{&worlds[0], "dp", 0},
                              {&worlds[1], "dp", 0},
                              {&worlds[0], "tp", 0},
                              {&worlds[0], "dp", 1}});
  EXPECT_EQ(std::set(lanes.begin(), lanes.end()).size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(lanes[i]->number(), i);
}

TEST_F(DeviceLanesTest, ALaneStaysWhenWhoBorrowedItIsGone) {
  BorrowOne("dp");
  BorrowOne("dp");
  EXPECT_EQ(device_->num_streams, 1);
}

TEST_F(DeviceLanesTest, ALaneThatNobodyBorrowsIsForOthers) {
  const auto kept = BorrowOne("dp");
  BorrowOne("tp");
  const auto next = BorrowOne("pp");
  EXPECT_NE(next, kept);
  EXPECT_EQ(device_->num_streams, 2);
  // Whoever comes back gets another one.
  EXPECT_NE(BorrowOne("tp"), next);
}

TEST_F(DeviceLanesTest, OnceAllAreBorrowedTheFewestAreShared) {
  const Lanes all = BorrowAll();
  Lanes again(all.begin(), all.end() - 1);  // Twice, but for the last.
  const auto shared = BorrowOne("one more");
  EXPECT_EQ(shared, all.back());
  EXPECT_EQ(BorrowOne("one more"), shared);
  EXPECT_EQ(device_->num_streams, static_cast<int>(kLanes));
}

TEST_F(DeviceLanesTest, LanesOfOnePlanAreApart) {
  std::vector<LaneKey> keys;
  for (uint32_t i = 0; i < 2 * kLanes; ++i) {
    keys.push_back(Key("dp", i));
  }
  const Lanes lanes = Borrow(keys);
  EXPECT_EQ(std::set(lanes.begin(), lanes.end()).size(), keys.size());
}

// Those who ask later find what is left of the budget, and no lane changes.
TEST_F(DeviceLanesTest, LanesAreMadeWhileTheBudgetHasRoom) {
  budget_ = {.total = 32, .num_lanes = 2};
  const auto first = BorrowOne("dp");
  EXPECT_EQ(first->share(), 16u);
  EXPECT_EQ(first->num_lanes(), 2u);
  budget_.num_lanes = 8;
  Lanes small;
  for (int i = 0; i < 5; ++i) small.push_back(BorrowOne(absl::StrCat("tp", i)));
  EXPECT_EQ(std::set(small.begin(), small.end()).size(), 5u);
  EXPECT_EQ(small[0]->share(), 4u);
  EXPECT_EQ(small[4], first) << "the first of those that one borrows";
  EXPECT_EQ(first->share(), 16u);
}

// Whoever borrows most elsewhere.
TEST_F(DeviceLanesTest, LanesOfOnePlanAreApartWhereAllAreShared) {
  const Lanes all = BorrowAll();
  const Lanes again = all;
  const Lanes most(all.begin(), all.end() - 1);
  const Lanes lanes = Borrow({Key("a", 0), Key("a", 1), Key("a", 2)});
  EXPECT_EQ(std::set(lanes.begin(), lanes.end()).size(), lanes.size());
}

TEST_F(DeviceLanesTest, LanesOfNumbersAreTheirs) {
  const auto other = BorrowOne("dp");
  const Lanes at =
      lanes_.BorrowAt(device_, budget_, {Key("tp"), Key("dp")}, {0, 2}).value();
  EXPECT_EQ(at[0], other);
  EXPECT_EQ(at[1]->number(), 2);
  // From now on.
  EXPECT_EQ(BorrowOne("dp"), at[1]);
  EXPECT_EQ(BorrowOne("pp")->number(), 1) << "which nobody has made";
}

TEST_F(DeviceLanesTest, WhoAsksIsToldHowItWas) {
  const Lanes all = BorrowAll();
  LanesInUse in_use;
  const Lanes lanes =
      lanes_.Borrow(device_, budget_, {Key("axis 1"), Key("dp")}, &in_use)
          .value();
  EXPECT_EQ(in_use.most, kLanes);
  EXPECT_EQ(in_use.others, (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(in_use.numbers, (std::vector<int32_t>{1, -1}));
}

TEST_F(DeviceLanesTest, NobodyGetsALaneThatIsLost) {
  const auto lost = BorrowOne("dp");
  lost->Lose();
  EXPECT_NE(BorrowOne("dp"), lost);
}

TEST_F(DeviceLanesTest, ADeviceThatMakesNoStreamIsAnError) {
  device_->failure = absl::ResourceExhaustedError("no stream is left");
  EXPECT_THAT(
      lanes_.Borrow(device_, budget_, {Key("dp")}).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, "no stream is left"));
  device_->failure = absl::OkStatus();
  EXPECT_OK(lanes_.Borrow(device_, budget_, {Key("dp")}).status());
}

// Of the process: another object may stand for the same device.
TEST_F(DeviceLanesTest, LanesAreTheDevicesAsLongAsSomebodyHasThem) {
  auto lanes = DeviceLanes::Of(*device_, /*seat=*/0);
  const LoggedDevice same;
  EXPECT_EQ(DeviceLanes::Of(same, 0), lanes);
  EXPECT_NE(DeviceLanes::Of(same, 1), lanes);
  ASSERT_OK(lanes->Borrow(device_, budget_, {Key("dp")}).status());
  EXPECT_EQ(device_->num_streams, 1);
  lanes.reset();
  lanes = DeviceLanes::Of(same, 0);
  ASSERT_OK(lanes->Borrow(device_, budget_, {Key("dp")}).status());
  EXPECT_EQ(device_->num_streams, 2);
}

}  // namespace
}  // namespace commsched

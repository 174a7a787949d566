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
    return lanes_.Borrow(device_, keys).value();
  }
  std::shared_ptr<DeviceLane> BorrowOne(const std::string& axes) {
    return Borrow({Key(axes)})[0];
  }
  // A lane for each of as many axes as get one alone.
  Lanes BorrowAll() {
    Lanes all;
    for (size_t i = 0; i < DeviceLanes::kMostLanes; ++i) {
      all.push_back(BorrowOne(absl::StrCat("axis ", i)));
    }
    return all;
  }

  const std::shared_ptr<LoggedDevice> device_ =
      std::make_shared<LoggedDevice>();
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
  EXPECT_EQ(device_->num_streams, static_cast<int>(DeviceLanes::kMostLanes));
}

TEST_F(DeviceLanesTest, LanesOfOnePlanAreApart) {
  std::vector<LaneKey> keys;
  for (uint32_t i = 0; i < 2 * DeviceLanes::kMostLanes; ++i) {
    keys.push_back(Key("dp", i));
  }
  const Lanes lanes = Borrow(keys);
  EXPECT_EQ(std::set(lanes.begin(), lanes.end()).size(), keys.size());
}

TEST_F(DeviceLanesTest, NobodyGetsALaneThatIsLost) {
  const auto lost = BorrowOne("dp");
  lost->Lose();
  EXPECT_NE(BorrowOne("dp"), lost);
}

TEST_F(DeviceLanesTest, ADeviceThatMakesNoStreamIsAnError) {
  device_->failure = absl::ResourceExhaustedError("no stream is left");
  EXPECT_THAT(
      lanes_.Borrow(device_, {Key("dp")}).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, "no stream is left"));
  device_->failure = absl::OkStatus();
  EXPECT_OK(lanes_.Borrow(device_, {Key("dp")}).status());
}

// Of the process: another object may stand for the same device.
TEST_F(DeviceLanesTest, LanesAreTheDevicesAsLongAsSomebodyHasThem) {
  auto lanes = DeviceLanes::Of(*device_, /*seat=*/0);
  const LoggedDevice same;
  EXPECT_EQ(DeviceLanes::Of(same, 0), lanes);
  EXPECT_NE(DeviceLanes::Of(same, 1), lanes);
  ASSERT_OK(lanes->Borrow(device_, {Key("dp")}).status());
  EXPECT_EQ(device_->num_streams, 1);
  lanes.reset();
  lanes = DeviceLanes::Of(same, 0);
  ASSERT_OK(lanes->Borrow(device_, {Key("dp")}).status());
  EXPECT_EQ(device_->num_streams, 2);
}

}  // namespace
}  // namespace commsched

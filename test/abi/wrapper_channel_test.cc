// channel.hpp: what it adds to the C ABI. Compiled as C++17 too.
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commsched/channel.hpp"
#include "gtest/gtest.h"

namespace {

namespace cs = commsched::api;

static_assert(!std::is_copy_constructible_v<cs::Channel>);
static_assert(std::is_nothrow_move_constructible_v<cs::Channel>);
static_assert(!std::is_copy_constructible_v<cs::Completions>);

template <typename T>
T Value(cs::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

// One rank, whose channel gets back what it gives.
class WrapperChannelTest : public ::testing::Test {
 protected:
  WrapperChannelTest() {
    const cs::World world = Value(cs::World::CreateInproc(1));
    const cs::Context context = Value(cs::Context::Create(world, 0));
    const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
    cs::ChannelSpec spec;
    spec.completions = &completions_;
    spec.key = 4;
    channel_ = Value(cs::Channel::Create(context, group, spec));
  }

  cs::Completions completions_ = Value(cs::Completions::Create(8));
  cs::Channel channel_;
  std::vector<float> data_ = {1, 2, 3};
};

TEST_F(WrapperChannelTest, ARequestIsWaitedForAndTold) {
  const uint64_t request =
      Value(channel_.Submit(cs::AllReduceOf(data_.data(), data_.size())));
  EXPECT_TRUE(channel_.Wait(request).ok());
  EXPECT_TRUE(Value(channel_.Test(request)));
  std::vector<commsched_completion_t> taken(8);
  ASSERT_EQ(Value(completions_.Next(&taken)), 1u);
  EXPECT_EQ(taken[0].key, 4u);
  EXPECT_EQ(taken[0].request, request);
  EXPECT_EQ(taken[0].status, static_cast<commsched_status_t>(COMMSCHED_OK));
}

TEST_F(WrapperChannelTest, AWakeUpIsNoCompletion) {
  EXPECT_TRUE(completions_.Wake().ok());
  std::vector<commsched_completion_t> taken(1);
  EXPECT_EQ(Value(completions_.Next(&taken)), 0u);
}

TEST_F(WrapperChannelTest, ErrorsAreValues) {
  const std::vector<commsched_channel_op_t> ops = {
      cs::SendOf(0, data_.data(), 1), cs::RecvOf(0, data_.data(), 1)};
  const cs::Status refused = channel_.SubmitBatch(ops).status();
  EXPECT_NE(refused.ToString().find("peer is 0"), std::string::npos)
      << refused.ToString();
  EXPECT_FALSE(channel_.Before(7, cs::CallerStream()).ok());
  channel_.Abort("enough");
  EXPECT_NE(channel_.status().ToString().find("enough"), std::string::npos);
}

TEST_F(WrapperChannelTest, EmptyHandlesAreRefused) {
  cs::Channel empty;
  EXPECT_FALSE(empty.Wait(1).ok());
  empty.Abort("nobody");
}

}  // namespace

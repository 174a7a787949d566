// A rank is lost: to channels of its groups, and to no others.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "channel/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

#ifdef COMMSCHED_TEST_UCX

using test::ChannelRig;
using test::OpOf;
using test::RunOp;
using testing::HasSubstr;

constexpr int kSize = 4;
constexpr int kLost = 3;

// Ranks 0 and 1, or 2 and 3.
std::vector<int> PairOf(int rank) {
  return rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
}

// Breaks the protocol, so that the server ends its connection.
void LoseRank(int rank, ChannelRig* rig) {
  rig->WorldOf(rank)->meeting()->Decline("key", rank, absl::OkStatus());
}

absl::Status Reduce(Channel& channel, float expected) {
  float value = 1;
  RETURN_IF_ERROR(
      RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1)));
  EXPECT_EQ(value, expected);
  return absl::OkStatus();
}

// Channels of one rank, which stay until all ranks are done.
class LosingRank {
 public:
  LosingRank(ChannelRig* rig, int rank) : rig_(rig), rank_(rank) {}

  absl::Status Open() {
    ASSIGN_OR_RETURN(all_, Channel::Create(rig_->Spec(rank_)));
    ASSIGN_OR_RETURN(pair_,
                     Channel::Create(rig_->SpecOf(rank_, PairOf(rank_), "tp")));
    RETURN_IF_ERROR(Reduce(*all_, kSize));
    return Reduce(*pair_, 2);
  }

  // Once rank 3 is lost.
  absl::Status GoOn() {
    EXPECT_TRUE(test::Await([&] { return !all_->status().ok(); }));
    if (rank_ >= 2) {
      EXPECT_TRUE(test::Await([&] { return !pair_->status().ok(); }));
      return pair_->status();
    }
    RETURN_IF_ERROR(Reduce(*pair_, 2));
    ASSIGN_OR_RETURN(again_,
                     Channel::Create(rig_->SpecOf(rank_, {1, 0}, "again")));
    return Reduce(*again_, 2);
  }

  absl::Status of_all() const { return all_->status(); }

 private:
  ChannelRig* const rig_;
  const int rank_;
  std::unique_ptr<Channel> all_, pair_, again_;
};

TEST(ChannelLossTest, ALostRankFailsChannelsOfItsGroupsOnly) {
  ChannelRig rig("ucx", kSize);
  std::atomic<int> num_open{0};
  std::atomic<int> num_over{0};
  const auto await = [](const std::atomic<int>& count) {
    while (count.load() < kSize) std::this_thread::yield();
  };
  const auto statuses = RunRanks(kSize, [&](int number) {
    LosingRank rank(&rig, number);
    const absl::Status opened = rank.Open();
    num_open.fetch_add(1);
    await(num_open);
    if (number == kLost) LoseRank(number, &rig);
    const absl::Status status = opened.ok() ? rank.GoOn() : opened;
    if (opened.ok() && number != kLost) {
      EXPECT_THAT(std::string(rank.of_all().message()),
                  HasSubstr("rank 3 is lost"));
    }
    num_over.fetch_add(1);
    await(num_over);
    return status;
  });
  EXPECT_OK(statuses[0]);
  EXPECT_OK(statuses[1]);
  EXPECT_THAT(statuses[2],
              StatusIs(absl::StatusCode::kAborted, "rank 3 is lost"));
  EXPECT_FALSE(statuses[3].ok());
}

#endif  // COMMSCHED_TEST_UCX

}  // namespace
}  // namespace commsched

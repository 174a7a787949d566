#include "comm/inproc/comm.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "comm/launch_check.h"
#include "gtest/gtest.h"
#include "test/support/fake_clock.h"
#include "test/support/launches.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int kRanks = 2;
constexpr uint64_t kLargeCount = 100'000;

// All ranks of one communicator, polled by the calling thread. Each launch is
// an in-place all-reduce by MAX of `count` floats, of value 1 on rank 0 and 7
// on rank 1, on a link that takes a second for it.
class Ranks {
 public:
  explicit Ranks(uint64_t count)
      : link_(
            {.bytes_per_s = 4.0 * static_cast<double>(count), .latency_ns = 0},
            kRanks),
        comm_(Desc(), &clock_, &link_) {
    for (int rank = 0; rank < kRanks; ++rank) {
      data_.emplace_back(count, rank == 0 ? 1.0f : 7.0f);
      scratch_.emplace_back(kRanks);
      desc_.rank = rank;
      EXPECT_OK(comm_.members()->Join(desc_, {}));
    }
  }

  const std::vector<float>& data(int rank) const { return data_[rank]; }

  void Post(int rank) {
    const uint64_t count = data_[rank].size();
    members_[rank] = {
        data_[rank].data(), data_[rank].data(), count, nullptr, 0, 0, 0, 0};
    const commsched_launch_t launch =
        LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_MAX, 0, 1, 1,
                 &members_[rank]);
    EXPECT_OK(comm_.Post(rank, number_, Normalized(launch), &scratch_[rank],
                         &cpu_ns_));
  }

  commsched_launch_result_t Poll(int rank) {
    commsched_launch_result_t result = {};
    EXPECT_OK(comm_.Advance(rank, number_, &scratch_[rank], &result, &cpu_ns_));
    return result;
  }

  void EndOfLink() { clock_.AdvanceNs(1'000'000'000); }

  // After all ranks have seen the launch done.
  void Next() { ++number_; }

 private:
  commsched_comm_desc_t Desc() {
    std::iota(ranks_, ranks_ + kRanks, 0);
    desc_.struct_size = sizeof(desc_);
    desc_.id = "comm";
    desc_.axis = "dp";
    desc_.ranks = ranks_;
    desc_.size = kRanks;
    desc_.max_in_flight = 4;
    desc_.max_members = 1;
    return desc_;
  }

  FakeClock clock_;
  EmulatedLink link_;
  int32_t ranks_[kRanks];
  commsched_comm_desc_t desc_ = {};
  InprocComm comm_;
  commsched_member_t members_[kRanks];
  std::vector<std::vector<float>> data_;
  std::vector<TransferScratch> scratch_;
  uint64_t number_ = 0;
  int64_t cpu_ns_ = 0;
};

// The member that comes first copies, while the link is busy.
TEST(InprocCommTest, ATransferIsDoneWhenItsLinkIs) {
  Ranks ranks(kLargeCount);
  for (int i = 0; i < 20; ++i) {
    ranks.Post(i % 2);
    ranks.Post(1 - i % 2);
    const commsched_launch_result_t result = ranks.Poll(1);
    EXPECT_EQ(result.done, 0u);
    EXPECT_EQ(result.wake_at_ns, int64_t{1'000'000'000} * (i + 1));
    EXPECT_EQ(ranks.data(0).front(), 7.0f);
    EXPECT_EQ(ranks.data(0).back(), 7.0f);
    EXPECT_EQ(ranks.Poll(0).done, 0u);
    ranks.EndOfLink();
    EXPECT_EQ(ranks.Poll(0).done, 1u);
    EXPECT_EQ(ranks.Poll(1).done, 1u);
    ranks.Next();
  }
}

}  // namespace
}  // namespace commsched

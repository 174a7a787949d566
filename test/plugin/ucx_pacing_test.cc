// A real communicator, one of whose ranks sends what the others do not take.
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "plugins/ucx/message.h"
#include "plugins/ucx/network/pacer.h"
#include "test/plugin/ucx_ranks.h"
#include "test/plugin/ucx_sends.h"
#include "test/support/await.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

int NumDescriptors() {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    (void)std::filesystem::read_symlink(entry.path(), error);
    count += error ? 0 : 1;
  }
  return count;
}

// Three hosts of a rank, of which each makes progress when the test says so.
// Rank 0 broadcasts, and its sends take turns.
class UcxPacingTest : public testing::Test {
 protected:
  static constexpr int kSize = 3;
  // More than all connections hold.
  static constexpr uint64_t kCount = 16 << 20;

  UcxPacingTest() : values_(kSize * kCount) {}

  void Join() {
    ASSERT_OK(JoinUcx("ranks_per_host=1;tls=tcp,self", kSize, &ranks_));
    ASSERT_OK(RunAllRanks(kSize, [&](int rank) {
      absl::Status status =
          CommOf(rank).Create(ranks_.WorldOf(rank).get(), {}, rank);
      return status.ok() ? CommOf(rank).AwaitReady() : status;
    }));
  }

  // All ranks at once, since who leaves waits for the others.
  void Leave() {
    EXPECT_OK(RunAllRanks(kSize, [&](int rank) {
      CommOf(rank).Destroy();
      return absl::OkStatus();
    }));
    ranks_.Leave();
  }

  CommDriver& CommOf(int rank) { return comms_[static_cast<size_t>(rank)]; }

  void Broadcast(int rank) { Launch(COMMSCHED_BROADCAST, /*root=*/0, rank); }
  void Launch(commsched_collective_t kind, int root, int rank) {
    int32_t* const data = values_.data() + static_cast<uint64_t>(rank) * kCount;
    commsched_member_t& member = members_[static_cast<size_t>(rank)];
    member = {data, data, kCount, nullptr, 0, 0, 0, 0};
    ASSERT_OK(CommOf(rank).Launch(
        LaunchOf(kind, COMMSCHED_I32, COMMSCHED_SUM, root, 0, 1, &member)));
  }

  JoinedRanks ranks_;
  std::array<CommDriver, kSize> comms_;
  std::array<commsched_member_t, kSize> members_ = {};
  std::vector<int32_t> values_;
};

TEST_F(UcxPacingTest, WhoseSendsWaitIsPolledAgainInTime) {
  Join();
  Broadcast(0);
  const auto polled = CommOf(0).Poll();
  ASSERT_OK(polled);
  EXPECT_EQ(polled->done, 0u);
  EXPECT_GT(polled->wake_at_ns, 0);
  EXPECT_LE(polled->wake_at_ns,
            SystemClock::Get().NowNs() + ucx::Pacer::kStallNs);
  Broadcast(1);
  Broadcast(2);
  EXPECT_OK(RunAllRanks(
      kSize, [&](int rank) { return CommOf(rank).Wait().status(); }));
  Leave();
}

// Ranks 0 and 1 own a half of the sums each, and rank 2, the root, gets nothing
// but results. Rank 0 sends it the first one long before the last input of
// rank 1's sums.
TEST_F(UcxPacingTest, ResultsOfAReduceDoNotWaitBehindItsInputs) {
  uint64_t result_bytes = 0;
  uint64_t input_bytes = 0;
  uint64_t input_bytes_before = 0;  // The first result.
  const UcxSendWatcher watcher([&](const UcxSend& send) {
    if (!send.is_data() || send.rank() != 0) return;
    const bool is_result = send.phase() == ucx::kResults;
    if (is_result && result_bytes == 0) input_bytes_before = input_bytes;
    (is_result ? result_bytes : input_bytes) += send.bytes;
  });
  Join();
  for (const int rank : {0, 1, 2}) Launch(COMMSCHED_REDUCE, /*root=*/2, rank);
  // In turns, so that nobody's sends wait for a rank that is stuck.
  while (result_bytes == 0) {
    for (CommDriver& comm : comms_) ASSERT_OK(comm.Poll());
  }
  EXPECT_OK(RunAllRanks(
      kSize, [&](int rank) { return CommOf(rank).Wait().status(); }));
  Leave();
  EXPECT_EQ(result_bytes, kCount / 2 * sizeof(int32_t));
  EXPECT_EQ(input_bytes, kCount / 2 * sizeof(int32_t));
  EXPECT_LT(input_bytes_before, input_bytes / 2);
}

// What waits is not there any more for who destroys the communicator: else it
// would keep what UCX has, until the process ends.
TEST_F(UcxPacingTest, WhatWaitsIsDroppedWithAFailure) {
  const int before = NumDescriptors();
  Join();
  Broadcast(0);
  const auto polled = CommOf(0).Poll();
  ASSERT_OK(polled);
  ASSERT_GT(polled->wake_at_ns, 0);
  for (CommDriver& comm : comms_) comm.Abort(COMMSCHED_ABORTED, "enough");
  Leave();
  EXPECT_EQ(NumDescriptors(), before);
}

}  // namespace
}  // namespace commsched

// Who sends more than it is sent does not run away from the others: what comes
// before its receive takes memory that nobody has planned.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/plugin/ucx_ranks.h"
#include "test/plugin/ucx_sends.h"
#include "test/support/alloc_counter.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

// Rank 0 sends, by UCX, and may be 64 KiB ahead.
class UcxEarlyTest : public testing::Test {
 protected:
  static constexpr int kSize = 3;
  static constexpr uint64_t kWindow = 64 << 10;
  static constexpr int kNumLaunches = 40;

  void SetUp() override {
    ASSERT_OK(JoinUcx("local=net;window_bytes=65536", kSize, &ranks_));
    ASSERT_OK(RunAllRanks(kSize, [&](int rank) {
      const absl::Status status =
          CommOf(rank).Create(ranks_.WorldOf(rank).get(), {}, rank);
      return status.ok() ? CommOf(rank).AwaitReady() : status;
    }));
  }
  void TearDown() override {
    EXPECT_OK(RunAllRanks(kSize, [&](int rank) {
      CommOf(rank).Destroy();
      return absl::OkStatus();
    }));
  }

  CommDriver& CommOf(int rank) { return comms_[static_cast<size_t>(rank)]; }

  // A launch of `bytes` with `first`, `first` + 1 and so on in rank 0.
  void Launch(commsched_collective_t kind, int root, uint64_t bytes, int rank,
              int32_t first) {
    std::vector<int32_t>& values = values_[static_cast<size_t>(rank)];
    values.assign(bytes / sizeof(int32_t), 0);
    if (rank == 0) std::iota(values.begin(), values.end(), first);
    commsched_member_t& member = members_[static_cast<size_t>(rank)];
    member = {values.data(), values.data(), values.size(), nullptr, 0, 0, 0, 0};
    ASSERT_OK(CommOf(rank).Launch(
        LaunchOf(kind, COMMSCHED_I32, COMMSCHED_SUM, root, 0, 1, &member)));
  }
  void Broadcast(uint64_t bytes, int rank, int32_t first) {
    Launch(COMMSCHED_BROADCAST, /*root=*/0, bytes, rank, first);
  }
  // All ranks make progress.
  void PollOnce() {
    for (CommDriver& comm : comms_) ASSERT_OK(comm.status());
  }

  JoinedRanks ranks_;
  std::array<CommDriver, kSize> comms_;
  std::array<commsched_member_t, kSize> members_ = {};
  std::array<std::vector<int32_t>, kSize> values_;
};

TEST_F(UcxEarlyTest, ARootWaitsForThoseWhoHaveNotPosted) {
  constexpr uint64_t kBytes = kWindow / 4;
  int num_done = 0;
  bool is_held = false;
  while (!is_held && num_done < kNumLaunches) {
    Broadcast(kBytes, /*rank=*/0, num_done);
    while (true) {
      const auto polled = CommOf(0).Poll();
      ASSERT_OK(polled);
      if (polled->done != 0) break;
      PollOnce();
      // Those who keep it are known.
      is_held = CommOf(0).Missing() == std::vector<int32_t>({1, 2});
      if (is_held) break;
    }
    if (!is_held) ++num_done;
  }
  EXPECT_TRUE(is_held);
  // Rank 0 sends both a half, or one of them all.
  EXPECT_GE(num_done, 4);
  EXPECT_LE(num_done, 8);
  // It goes on when they have posted what was before.
  EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
    for (int i = 0; rank != 0 && i <= num_done; ++i) {
      Broadcast(kBytes, rank, i);
      const absl::Status status = CommOf(rank).Wait().status();
      if (!status.ok()) return status;
      EXPECT_EQ(values_[static_cast<size_t>(rank)].front(), i);
      EXPECT_EQ(values_[static_cast<size_t>(rank)].back(),
                i + static_cast<int32_t>(kBytes / sizeof(int32_t)) - 1);
    }
    return rank == 0 ? CommOf(rank).Wait().status() : absl::OkStatus();
  }));
}

// Larger launches than the window go, too, one after the other.
TEST_F(UcxEarlyTest, WhatIsEarlyIsLessThanTheWindowAndOneLaunch) {
  for (const uint64_t bytes : {kWindow / 8, 3 * kWindow}) {
    std::atomic<uint64_t> sent_bytes{0};
    std::array<std::atomic<uint64_t>, kSize> num_posted = {};
    std::atomic<bool> was_too_early{false};
    const UcxSendWatcher watcher([&](const UcxSend& send) {
      if (!send.is_data() || send.rank() != 0) return;
      sent_bytes += send.bytes;
      const uint64_t posted =
          std::min(num_posted[1].load(), num_posted[2].load());
      // To both.
      if (sent_bytes > 2 * (posted * bytes + kWindow + bytes)) {
        was_too_early = true;
      }
    });
    EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
      for (int i = 0; i < kNumLaunches; ++i) {
        Broadcast(bytes, rank, i);
        ++num_posted[static_cast<size_t>(rank)];
        const absl::Status status = CommOf(rank).Wait().status();
        if (!status.ok()) return status;
        EXPECT_EQ(values_[static_cast<size_t>(rank)].front(), i);
      }
      return absl::OkStatus();
    }));
    EXPECT_GE(sent_bytes, kNumLaunches * bytes);
    EXPECT_FALSE(was_too_early);
  }
}

// Who asks, and who answers, have memory for it.
TEST_F(UcxEarlyTest, OnceWarmNothingIsAllocatedForIt) {
  std::barrier all(kSize);
  uint64_t allocations = 0;
  EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
    std::vector<float> values(kWindow / sizeof(float), 1);
    const commsched_member_t member = {
        values.data(), values.data(), values.size(), nullptr, 0, 0, 0, 0};
    const auto broadcast = [&](int num_launches) -> absl::Status {
      for (int i = 0; i < num_launches; ++i) {
        RETURN_IF_ERROR(CommOf(rank).LaunchAndWait(
            LaunchOf(COMMSCHED_BROADCAST, COMMSCHED_F32, COMMSCHED_SUM,
                     /*root=*/0, 0, 1, &member)));
      }
      return absl::OkStatus();
    };
    absl::Status status = broadcast(10);
    all.arrive_and_wait();
    if (rank == 0) allocations = HeapAllocations();
    all.arrive_and_wait();
    status.Update(broadcast(kNumLaunches));
    all.arrive_and_wait();
    if (rank == 0) allocations = HeapAllocations() - allocations;
    all.arrive_and_wait();
    return status;
  }));
  EXPECT_EQ(allocations, 0u);
}

// Several send, and get nothing.
TEST_F(UcxEarlyTest, SoDoThoseWhoHaveInputsForARoot) {
  for (const int root : {0, 1}) {
    EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
      for (int i = 0; i < kNumLaunches; ++i) {
        Launch(COMMSCHED_REDUCE, root, kWindow / 2, rank, i);
        const absl::Status status = CommOf(rank).Wait().status();
        if (!status.ok()) return status;
        if (rank == root) {
          EXPECT_EQ(values_[static_cast<size_t>(rank)].front(), i);
        }
      }
      return absl::OkStatus();
    }));
  }
}

}  // namespace
}  // namespace commsched

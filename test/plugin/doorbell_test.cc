// How ranks of a host wake each other with backend "ucx".
#include "plugins/ucx/host/doorbell.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

constexpr int kRanks = 130;

class DoorbellTest : public testing::Test {
 protected:
  ~DoorbellTest() override { close(fd_); }

  Bell BellOf(int rank) { return Bell(state_.get(), rank, fd_); }
  std::vector<int> News() {
    std::vector<int> ranks;
    ear_.VisitNews([&](int rank) { ranks.push_back(rank); });
    return ranks;
  }
  bool IsWoken() {
    eventfd_t value = 0;
    return eventfd_read(fd_, &value) == 0;
  }

  const int fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const std::unique_ptr<BellState> state_ = std::make_unique<BellState>();
  BellEar ear_{state_.get(), kRanks};
};

TEST_F(DoorbellTest, WhoHasRungIsVisitedOnce) {
  for (const int rank : {129, 0, 64, 63, 64}) BellOf(rank).Ring();
  EXPECT_EQ(News(), (std::vector<int>{0, 63, 64, 129}));
  EXPECT_EQ(News(), std::vector<int>());
}

TEST_F(DoorbellTest, OnlyOneWhoSleepsIsWoken) {
  BellOf(1).Ring();
  EXPECT_FALSE(IsWoken());
  News();
  ASSERT_TRUE(ear_.Arm());
  BellOf(1).Ring();
  BellOf(2).Ring();
  EXPECT_TRUE(IsWoken());
  ear_.Disarm();
  BellOf(3).Ring();
  EXPECT_FALSE(IsWoken());
}

TEST_F(DoorbellTest, WhoHasNewsDoesNotSleep) {
  BellOf(100).Ring();
  EXPECT_FALSE(ear_.Arm());
  BellOf(1).Ring();
  EXPECT_FALSE(IsWoken());
}

// Such as a process that is killed between the two.
TEST_F(DoorbellTest, WhoTellsAndDoesNotGetAsFarAsWakingLeavesItToTheNextOne) {
  ASSERT_TRUE(ear_.Arm());
  EXPECT_NE(BellOf(1).Tell(), 0u);
  BellOf(2).Ring();
  EXPECT_TRUE(IsWoken());
}

TEST_F(DoorbellTest, WhoWakesLateDoesNotEndTheNextSleep) {
  ASSERT_TRUE(ear_.Arm());
  const uint64_t sleep = BellOf(1).Tell();
  ear_.Disarm();
  News();
  ASSERT_TRUE(ear_.Arm());
  BellOf(1).Wake(sleep);
  EXPECT_TRUE(IsWoken());  // For nothing.
  BellOf(2).Ring();
  EXPECT_TRUE(IsWoken());
}

TEST_F(DoorbellTest, NoRingIsLost) {
  constexpr int kRings = 10'000;
  std::atomic<int> rung{0};
  std::atomic<int> heard{0};
  std::thread other([&] {
    for (int i = 1; i <= kRings; ++i) {
      rung = i;
      BellOf(7).Ring();
      while (heard < i && heard >= 0) std::this_thread::yield();
    }
  });
  while (heard < kRings) {
    if (!News().empty()) {
      heard = rung.load();
      continue;
    }
    if (!ear_.Arm()) continue;
    pollfd fd = {fd_, POLLIN, 0};
    if (poll(&fd, 1, /*timeout=*/60'000) == 0) {
      heard = -1;  // The other gives up, too.
      break;
    }
    ear_.Disarm();
    IsWoken();
  }
  EXPECT_EQ(heard, kRings) << "slept although there were news";
  if (heard != kRings) heard = kRings;
  other.join();
}

}  // namespace
}  // namespace commsched::ucx

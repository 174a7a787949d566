// Which connection the messages of a launch take between hosts.
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/plugin/ucx_ranks.h"
#include "test/plugin/ucx_sends.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int kSize = 3;

// The endpoints that messages have gone by, of all ranks.
class Seen {
 public:
  void Begin(std::set<void*>* data) {
    const std::lock_guard<std::mutex> lock(mu_);
    data_ = data;
  }
  void Add(const UcxSend& send) {
    const std::lock_guard<std::mutex> lock(mu_);
    (send.is_data() ? data_ : &others_)->insert(send.endpoint);
  }

 private:
  std::mutex mu_;
  std::set<void*>* data_ = nullptr;
  std::set<void*> others_;
};

std::set<void*> Both(const std::set<void*>& a, const std::set<void*>& b) {
  std::set<void*> both;
  for (void* const one : a) {
    if (b.contains(one)) both.insert(one);
  }
  return both;
}

TEST(UcxBulkTest, WhatIsSmallSoonTakesAnotherConnectionThanWhatIsLarge) {
  JoinedRanks ranks;
  ASSERT_OK(JoinUcx("local=net", kSize, &ranks));
  std::set<void*> small, large;
  Seen seen;
  seen.Begin(&small);
  const UcxSendWatcher watcher([&](const UcxSend& send) { seen.Add(send); });
  // Until the connections are there, which nobody waits for, they share one.
  bool are_apart = false;
  EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
    CommDriver comm;
    RETURN_IF_ERROR(comm.Create(ranks.WorldOf(rank).get(), {}, rank));
    const auto run = [&](uint64_t count, std::set<void*>* data,
                         const std::string& what) -> absl::Status {
      std::vector<float> values(count, 1.0f);
      const commsched_member_t member = {
          values.data(), values.data(), count, nullptr, 0, 0, 0, 0};
      RETURN_IF_ERROR(ranks.Meet("before " + what, rank));
      if (rank == 0) {
        seen.Begin(data);
        data->clear();
      }
      RETURN_IF_ERROR(ranks.Meet("begun " + what, rank));
      RETURN_IF_ERROR(
          comm.LaunchAndWait(LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32,
                                      COMMSCHED_SUM, 0, 1, 1, &member)));
      return ranks.Meet("after " + what, rank);
    };
    for (int round = 0; round < 1000; ++round) {
      const std::string number = std::to_string(round);
      RETURN_IF_ERROR(run(1000, &small, "small " + number));
      RETURN_IF_ERROR(run(500'000, &large, "large " + number));
      if (rank == 0) are_apart = Both(small, large).empty();
      RETURN_IF_ERROR(ranks.Meet("seen " + number, rank));
      if (are_apart) break;
    }
    return ranks.Meet("done", rank);
  }));
  EXPECT_TRUE(are_apart);
  EXPECT_FALSE(small.empty());
  EXPECT_FALSE(large.empty());
}

}  // namespace
}  // namespace commsched

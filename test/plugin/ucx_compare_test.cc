// Members that launch something else of the same size: no byte shows it.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/plugin/ucx_ranks.h"
#include "test/support/await.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::HasSubstr;

constexpr int kSize = 3;

class UcxCompareTest : public testing::Test {
 protected:
  // What becomes of `body` on each rank, with a communicator of all.
  std::vector<absl::Status> Run(
      const std::function<absl::Status(int rank, CommDriver& comm)>& body) {
    EXPECT_OK(JoinUcx("", kSize, &ranks_));
    return RunRanks(kSize, [&](int rank) -> absl::Status {
      CommDriver comm;
      RETURN_IF_ERROR(comm.Create(ranks_.WorldOf(rank).get(), {}, rank));
      const absl::Status status = body(rank, comm);
      // Who leaves has failed in its own way.
      RETURN_IF_ERROR(ranks_.Meet("over", rank));
      return status;
    });
  }

  static commsched_launch_t Launch(commsched_collective_t kind,
                                   commsched_reduce_op_t reduce_op, int root,
                                   const commsched_member_t* member) {
    return LaunchOf(kind, COMMSCHED_F32, reduce_op, root, 0, 1, member);
  }

 private:
  JoinedRanks ranks_;
};

TEST_F(UcxCompareTest, AnotherReductionIsNamedBeforeLong) {
  constexpr int kOther = 5;  // Launch of rank 1.
  constexpr int kMost = 200;
  const auto statuses = Run([&](int rank, CommDriver& comm) -> absl::Status {
    float value = 1;
    const commsched_member_t member{&value, &value, 1, nullptr, 0, 0, 0, 0};
    for (int i = 0; i < kMost; ++i) {
      const bool is_other = i == kOther && rank == 1;
      RETURN_IF_ERROR(comm.LaunchAndWait(
          Launch(COMMSCHED_ALL_REDUCE, is_other ? COMMSCHED_MAX : COMMSCHED_SUM,
                 0, &member)));
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 "axis 'dp', launch #5: rank "));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1 has reduction max"));
  }
}

// Ranks 0 and 2 wait for rank 1, which waits for rank 0.
TEST_F(UcxCompareTest, MembersThatWaitForEachOtherAreNamedWhenTheyAsk) {
  const auto statuses = Run([&](int rank, CommDriver& comm) -> absl::Status {
    float value = 1;
    const commsched_member_t member{&value, &value, 1, nullptr, 0, 0, 0, 0};
    const commsched_launch_t launch =
        Launch(COMMSCHED_BROADCAST, COMMSCHED_SUM, rank == 1 ? 0 : 1, &member);
    RETURN_IF_ERROR(comm.Launch(launch));
    absl::Status status;
    EXPECT_TRUE(test::Await([&] {
      comm.Ask();
      status = comm.Poll().status();
      return !status.ok();
    }));
    return status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 "axis 'dp', launch #0: rank "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has root 0"));
  }
}

}  // namespace
}  // namespace commsched

#include "comm/meeting/part_meeting.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/meeting/memory_meeting.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;

constexpr int64_t kPartNs = int64_t{60} * 1'000'000'000;

// Ranks 3 and 1 of a job of four.
class PartMeetingTest : public testing::Test {
 protected:
  static constexpr int kJobRank[] = {3, 1};

  MemoryMeeting job_{4};
  const std::shared_ptr<const JobPart> part_ =
      std::make_shared<JobPart>("id", "tp", std::vector<int>{3, 1});
  PartMeeting meeting_{&job_, part_};
};

TEST_F(PartMeetingTest, ItsRanksMeetInTheOrderOfTheWorld) {
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    const auto all =
        meeting_.AllGather("key", rank, absl::StrCat("p", rank), kPartNs);
    if (!all.ok()) return all.status();
    EXPECT_THAT(*all, ElementsAre("p0", "p1"));
    const auto some = meeting_.AllGatherAmong({1, 0}, "some", rank,
                                              absl::StrCat("q", rank), kPartNs);
    if (!some.ok()) return some.status();
    EXPECT_THAT(*some, ElementsAre("q1", "q0"));
    const auto matches =
        meeting_.Match("match", rank, {Claim::Of("key", "same", 2)}, kPartNs);
    EXPECT_TRUE(matches.ok() && *matches);
    return meeting_.Split({0, 1}, "split", rank, "", "splits", kPartNs);
  }));
  EXPECT_EQ(job_.NumOpen(), 0);
}

// Ranks 3 and 1 are in both at once.
TEST_F(PartMeetingTest, ItsKeysAreNotThoseOfTheJob) {
  EXPECT_OK(RunAllRanks(4, [&](int thread) -> absl::Status {
    const int rank = thread % 2;
    if (thread < 2) {
      return meeting_.AllGather("key", rank, "part", kPartNs).status();
    }
    const auto all = job_.AllGatherAmong({1, 3}, "key", kJobRank[rank],
                                         absl::StrCat(thread), kPartNs);
    if (!all.ok()) return all.status();
    EXPECT_THAT(*all, ElementsAre("3", "2"));
    return absl::OkStatus();
  }));
}

TEST_F(PartMeetingTest, MessagesNameTheWorldAndNumberRanksAsItDoes) {
  EXPECT_THAT(meeting_.AllGather("plan", 0, "", 1'000'000),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "world 'tp': meeting 'plan': rank 0 waited 1 ms; "
                       "missing of 2 ranks: 1"));
  meeting_.Decline("all", 1, absl::InternalError("no plan"));
  EXPECT_THAT(meeting_.Match("all", 0, {}, kPartNs),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "world 'tp': meeting 'all': rank 1 will not come: no "
                       "plan"));
  meeting_.DeclineAmong({0, 1}, "some", 0, absl::AbortedError("enough"));
  EXPECT_THAT(meeting_.MatchAmong({0, 1}, "some", 1, {}, kPartNs),
              StatusIs(absl::StatusCode::kAborted,
                       "world 'tp': meeting 'some': rank 0 will not come: "
                       "enough"));
}

TEST_F(PartMeetingTest, ItsSplitsThatCrossAreNamedWithIt) {
  for (const absl::Status& status : RunRanks(2, [&](int rank) {
         return meeting_.Split({0, 1}, absl::StrCat(rank), rank, "",
                               absl::StrCat("does ", rank), kPartNs);
       })) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "world 'tp': rank "));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "each waits for the other"));
  }
}

// Rank 1 of the job may well make both at once.
TEST_F(PartMeetingTest, ItsSplitsDoNotCrossThoseOfTheJob) {
  EXPECT_OK(RunAllRanks(4, [&](int thread) -> absl::Status {
    const int rank = thread % 2;
    if (thread < 2) {
      return meeting_.Split({0, 1}, "a", rank, "", "does a", kPartNs);
    }
    return job_.Split({1, 3}, "b", kJobRank[rank], "", "does b", kPartNs);
  }));
}

}  // namespace
}  // namespace commsched

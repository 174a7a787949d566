#include "comm/meeting/memory_meeting.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int64_t kDeadlineNs = int64_t{60} * 1'000'000'000;

TEST(MemoryMeetingTest, EveryRankGetsAllPayloadsInRankOrder) {
  MemoryMeeting meeting(4);
  EXPECT_OK(RunAllRanks(4, [&](int rank) -> absl::Status {
    auto all =
        meeting.AllGather("key", rank, absl::StrCat("p", rank), kDeadlineNs);
    if (!all.ok()) return all.status();
    EXPECT_EQ(*all, (std::vector<std::string>{"p0", "p1", "p2", "p3"}));
    return absl::OkStatus();
  }));
}

TEST(MemoryMeetingTest, KeepsNothingOnceAllHaveLeft) {
  MemoryMeeting meeting(3);
  EXPECT_OK(RunAllRanks(3, [&](int rank) -> absl::Status {
    for (int i = 0; i < 100; ++i) {
      auto all = meeting.AllGather(absl::StrCat("key", i), rank,
                                   std::to_string(i * 10 + rank), kDeadlineNs);
      if (!all.ok()) return all.status();
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ((*all)[r], std::to_string(i * 10 + r));
      }
    }
    return absl::OkStatus();
  }));
  EXPECT_EQ(meeting.NumOpen(), 0);
}

TEST(MemoryMeetingTest, KeysDoNotMix) {
  MemoryMeeting meeting(2);
  EXPECT_OK(RunAllRanks(4, [&](int thread) -> absl::Status {
    const int rank = thread % 2;
    const std::string key = thread < 2 ? "a" : "b";
    auto all = meeting.AllGather(key, rank, key, kDeadlineNs);
    if (!all.ok()) return all.status();
    EXPECT_EQ(*all, (std::vector<std::string>{key, key}));
    return absl::OkStatus();
  }));
}

TEST(MemoryMeetingTest, TimeoutNamesTheMissingRanks) {
  MemoryMeeting meeting(4);
  EXPECT_THAT(meeting.AllGather("fingerprint", 1, "", 1),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "missing of 4 ranks: 0, 2, 3"));
}

TEST(MemoryMeetingTest, AMeetingThatFailedForOneFailsForThoseWhoComeLate) {
  MemoryMeeting meeting(2);
  EXPECT_THAT(meeting.AllGather("key", 0, "", 1),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "'key'"));
  EXPECT_THAT(meeting.AllGather("key", 1, "", kDeadlineNs),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 0 waited"));
  EXPECT_EQ(meeting.NumOpen(), 0);
}

TEST(MemoryMeetingTest, ARankThatDeclinesIsNamedToThoseWhoWaitAndComeLate) {
  MemoryMeeting meeting(3);
  std::thread waiting([&] {
    EXPECT_THAT(meeting.AllGather("key", 0, "", kDeadlineNs),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "'key': rank 1 will not come: no plan"));
  });
  EXPECT_TRUE(test::Await([&] { return meeting.NumOpen() != 0; }));
  meeting.Decline("key", 1, absl::InvalidArgumentError("no plan"));
  EXPECT_THAT(meeting.AllGather("key", 2, "", kDeadlineNs),
              StatusIs(absl::StatusCode::kFailedPrecondition, "rank 1"));
  waiting.join();
  EXPECT_EQ(meeting.NumOpen(), 0);
}

TEST(MemoryMeetingTest, ARankThatWaitsGetsOutByDeclining) {
  MemoryMeeting meeting(2);
  std::thread waiting([&] {
    EXPECT_THAT(
        meeting.AllGather("key", 0, "", kDeadlineNs),
        StatusIs(absl::StatusCode::kAborted, "'key': rank 0 left: enough"));
  });
  EXPECT_TRUE(test::Await([&] { return meeting.NumOpen() != 0; }));
  meeting.Decline("key", 0, absl::AbortedError("enough"));
  waiting.join();
  EXPECT_THAT(meeting.AllGather("key", 1, "", kDeadlineNs),
              StatusIs(absl::StatusCode::kAborted, "rank 0 left"));
  EXPECT_EQ(meeting.NumOpen(), 0);
}

TEST(MemoryMeetingTest, TheFirstWhoDeclinesIsNamed) {
  MemoryMeeting meeting(3);
  meeting.Decline("key", 2, absl::InvalidArgumentError("no plan"));
  meeting.Decline("key", 0, absl::InvalidArgumentError("no groups"));
  meeting.Decline("key", 3, absl::InvalidArgumentError("not in the world"));
  EXPECT_THAT(
      meeting.AllGather("key", 1, "", kDeadlineNs),
      StatusIs(absl::StatusCode::kFailedPrecondition, "rank 2 will not"));
  EXPECT_EQ(meeting.NumOpen(), 0);
}

TEST(MemoryMeetingTest, AllMayDecline) {
  MemoryMeeting meeting(2);
  meeting.Decline("key", 0, absl::InvalidArgumentError("no plan"));
  meeting.Decline("key", 1, absl::InvalidArgumentError("no plan"));
  EXPECT_EQ(meeting.NumOpen(), 0);
}

TEST(MemoryMeetingTest, ComingTwiceIsAnError) {
  MemoryMeeting meeting(2);
  std::thread other([&] {
    EXPECT_OK(meeting.AllGather("key", 0, "", kDeadlineNs).status());
  });
  EXPECT_TRUE(test::Await([&] { return meeting.NumOpen() != 0; }));
  EXPECT_THAT(meeting.AllGather("key", 0, "", kDeadlineNs),
              StatusIs(absl::StatusCode::kAlreadyExists, "rank 0"));
  EXPECT_OK(meeting.AllGather("key", 1, "", kDeadlineNs).status());
  other.join();
}

TEST(MemoryMeetingTest, ARankOutsideTheWorldIsRefused) {
  MemoryMeeting meeting(2);
  EXPECT_THAT(meeting.AllGather("key", 2, "", kDeadlineNs),
              StatusIs(absl::StatusCode::kInvalidArgument, "not in 0..1"));
}

}  // namespace
}  // namespace commsched

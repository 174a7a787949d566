#include "control/meeting_table.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;

constexpr MeetingKind kGather = MeetingKind::kGather;
constexpr MeetingKind kAgree = MeetingKind::kAgree;
constexpr MeetingKind kMatch = MeetingKind::kMatch;
constexpr MeetingKind kBroadcast = MeetingKind::kBroadcast;
constexpr MeetingKind kSplit = MeetingKind::kSplit;

const std::vector<int> kAll = {0, 1, 2};

// What rank 0.. of those who wait leave with.
absl::Status FailureOf(const MeetingTable& table, absl::string_view key) {
  const MeetingTable::Meeting* meeting = table.Find(key);
  if (meeting == nullptr) return absl::NotFoundError(key);
  if (!meeting->decided) return absl::UnavailableError("undecided");
  return meeting->failure;
}

void LeaveAll(MeetingTable* table, absl::string_view key) {
  for (const int rank : table->Waiting(key)) table->Leave(key, rank);
}

TEST(MeetingTableTest, AGatherIsDecidedByTheLastAndForgottenByTheLast) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kGather, "key", {2, 0}, 0, "p0"));
  EXPECT_THAT(FailureOf(table, "key"),
              StatusIs(absl::StatusCode::kUnavailable, "undecided"));
  ASSERT_OK(table.Come(kGather, "key", {2, 0}, 2, "p2"));
  ASSERT_OK(FailureOf(table, "key"));
  EXPECT_THAT(table.Find("key")->results, ElementsAre("p2", "p0"));
  EXPECT_THAT(table.Waiting("key"), ElementsAre(2, 0));
  table.Leave("key", 2);
  EXPECT_EQ(table.num_open(), 1u);
  table.Leave("key", 0);
  EXPECT_EQ(table.num_open(), 0u);
}

TEST(MeetingTableTest, AnAgreementGivesOnePayload) {
  MeetingTable table(3);
  for (const int rank : kAll) {
    ASSERT_OK(table.Come(kAgree, "key", kAll, rank, "same"));
  }
  EXPECT_THAT(table.Find("key")->results, ElementsAre("same"));
}

TEST(MeetingTableTest, ADisagreementNamesBothRanksAndValuesAtOnce) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kAgree, "dtype", kAll, 2, "f32"));
  ASSERT_OK(table.Come(kAgree, "dtype", kAll, 1, "bf16"));
  EXPECT_THAT(FailureOf(table, "dtype"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'dtype': rank 1 has 'bf16', rank 2 has 'f32'"));
  LeaveAll(&table, "dtype");
  ASSERT_OK(table.Come(kAgree, "dtype", kAll, 0, "f32"));
  EXPECT_THAT(FailureOf(table, "dtype"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "rank 1 has"));
  LeaveAll(&table, "dtype");
  EXPECT_EQ(table.num_open(), 0u);
}

TEST(MeetingTableTest, LongAndBinaryValuesAreShownCut) {
  MeetingTable table(2);
  ASSERT_OK(table.Come(kAgree, "key", {0, 1}, 0, std::string(1000, 'x')));
  ASSERT_OK(table.Come(kAgree, "key", {0, 1}, 1, std::string("\x01\0", 2)));
  EXPECT_THAT(FailureOf(table, "key"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       absl::StrCat("rank 0 has '", std::string(64, 'x'),
                                    "...', rank 1 has '\\x01\\x00'")));
}

TEST(MeetingTableTest, AMatchSaysOnlyWhetherClaimsHoldTogether) {
  for (const bool equal : {true, false}) {
    MeetingTable table(3);
    for (const int rank : kAll) {
      const std::string value = rank == 2 && !equal ? "bf16" : "f32";
      ASSERT_OK(table.Come(kMatch, "dtype", kAll, rank,
                           EncodeClaims({Claim::Of("dtype", value)})));
      EXPECT_EQ(table.Find("dtype")->decided, rank == 2);
    }
    ASSERT_OK(FailureOf(table, "dtype"));
    EXPECT_THAT(
        table.Find("dtype")->results,
        ElementsAre(equal ? MeetingTable::kMatches : MeetingTable::kDiffers));
    LeaveAll(&table, "dtype");
    EXPECT_EQ(table.num_open(), 0u);
  }
}

TEST(MeetingTableTest, WhatIsNoClaimsIsRefusedAndOpensNothing) {
  MeetingTable table(2);
  EXPECT_THAT(table.Come(kMatch, "key", {0, 1}, 0, "text"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "claims of 4 bytes are not of 28 bytes each"));
  EXPECT_EQ(table.num_open(), 0u);
}

TEST(MeetingTableTest, ABroadcastWaitsForItsFirstMemberOnly) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kBroadcast, "id", {1, 0, 2}, 2, ""));
  EXPECT_THAT(FailureOf(table, "id"),
              StatusIs(absl::StatusCode::kUnavailable, "undecided"));
  ASSERT_OK(table.Come(kBroadcast, "id", {1, 0, 2}, 1, "value"));
  ASSERT_OK(FailureOf(table, "id"));
  LeaveAll(&table, "id");
  EXPECT_THAT(table.Find("id")->results, ElementsAre("value"));
  ASSERT_OK(table.Come(kBroadcast, "id", {1, 0, 2}, 0, ""));
  LeaveAll(&table, "id");
  EXPECT_EQ(table.num_open(), 0u);
}

TEST(MeetingTableTest, ADeadlineNamesWhoIsMissing) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kGather, "key", kAll, 1, ""));
  table.Expire("key", 1, 2'500'000);
  EXPECT_THAT(FailureOf(table, "key"),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "'key': rank 1 waited 2 ms; missing of 3 ranks: 0, 2"));
}

TEST(MeetingTableTest, ManyMissingRanksAreCounted) {
  MeetingTable table(100);
  std::vector<int> all(100);
  for (int i = 0; i < 100; ++i) all[i] = i;
  ASSERT_OK(table.Come(kGather, "key", all, 0, ""));
  table.Expire("key", 0, 0);
  EXPECT_THAT(
      FailureOf(table, "key"),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "15, 16 and 83 more"));
}

TEST(MeetingTableTest, WhoDeclinesIsNamedAndHasLeft) {
  MeetingTable table(3);
  table.Decline("key", kAll, 2, absl::InvalidArgumentError("no plan"));
  table.Decline("key", kAll, 0, absl::InvalidArgumentError("no groups"));
  ASSERT_OK(table.Come(kAgree, "key", kAll, 1, ""));
  EXPECT_THAT(FailureOf(table, "key"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'key': rank 2 will not come: no plan"));
  LeaveAll(&table, "key");
  EXPECT_EQ(table.num_open(), 0u);
}

TEST(MeetingTableTest, ALostRankFailsMeetingsNowAndLater) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kGather, "with", {0, 2}, 0, ""));
  ASSERT_OK(table.Come(kGather, "without", {0, 1}, 0, ""));
  EXPECT_THAT(table.Lose(2, absl::AbortedError("rank 2 is lost: killed")),
              ElementsAre("with"));
  EXPECT_THAT(FailureOf(table, "with"),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 2 will not come: rank 2 is lost: killed"));
  EXPECT_THAT(FailureOf(table, "without"),
              StatusIs(absl::StatusCode::kUnavailable, "undecided"));
  ASSERT_OK(table.Come(kGather, "later", {1, 2}, 1, ""));
  EXPECT_THAT(FailureOf(table, "later"),
              StatusIs(absl::StatusCode::kAborted, "rank 2 will not come"));
  LeaveAll(&table, "later");
  LeaveAll(&table, "with");
  EXPECT_EQ(table.num_open(), 1u);
}

TEST(MeetingTableTest, ADecidedMeetingStaysDecided) {
  MeetingTable table(2);
  ASSERT_OK(table.Come(kGather, "key", {0, 1}, 0, "a"));
  ASSERT_OK(table.Come(kGather, "key", {0, 1}, 1, "b"));
  table.Expire("key", 0, 1);
  table.Decline("key", {0, 1}, 0, absl::AbortedError("late"));
  EXPECT_THAT(table.Lose(1, absl::AbortedError("gone")), ElementsAre());
  EXPECT_OK(FailureOf(table, "key"));
  EXPECT_THAT(table.Waiting("key"), ElementsAre(0));
}

TEST(MeetingTableTest, MistakesChangeNothing) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kGather, "key", {0, 1}, 0, ""));
  using absl::StatusCode;
  EXPECT_THAT(table.Come(kGather, "key", {0, 1}, 0, ""),
              StatusIs(StatusCode::kAlreadyExists, "rank 0 is already in"));
  EXPECT_THAT(table.Come(kGather, "key", {0, 1}, 2, ""),
              StatusIs(StatusCode::kInvalidArgument, "rank 2 is not among 0"));
  EXPECT_THAT(table.Come(kAgree, "key", {0, 1}, 1, ""),
              StatusIs(StatusCode::kInvalidArgument,
                       "came to one of kind agree of ranks 0, 1; the meeting "
                       "is of kind gather of ranks 0, 1"));
  EXPECT_THAT(table.Come(kGather, "key", {1, 0}, 1, ""),
              StatusIs(StatusCode::kInvalidArgument, "of ranks 1, 0; "));
  EXPECT_THAT(
      table.Come(kGather, "other", {1, 3}, 1, ""),
      StatusIs(StatusCode::kInvalidArgument, "member 3 is not in 0..2"));
  EXPECT_THAT(
      table.Come(kGather, "other", {1, 2, 1}, 1, ""),
      StatusIs(StatusCode::kInvalidArgument, "member 1 is named twice"));
  table.Decline("other", {1, 1}, 1, absl::AbortedError("x"));
  table.Decline("key", {0, 1, 2}, 2, absl::AbortedError("x"));
  EXPECT_EQ(table.num_open(), 1u);
  ASSERT_OK(table.Come(kGather, "key", {0, 1}, 1, ""));
  EXPECT_OK(FailureOf(table, "key"));
}

// ---- Ranks of a world that is a part of the job ----

TEST(MeetingTableTest, MessagesCallMembersByTheirNames) {
  MeetingTable table(6);
  const std::vector<int> ranks = {5, 2};
  const std::vector<int> names = {0, 1};
  const MeetingMembers members(ranks, names);
  ASSERT_OK(table.Come(kGather, "late", members, 5, ""));
  table.Expire("late", 5, 1'000'000);
  EXPECT_THAT(FailureOf(table, "late"),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "rank 0 waited 1 ms; missing of 2 ranks: 1"));
  ASSERT_OK(table.Come(kAgree, "dtype", members, 5, "f32"));
  ASSERT_OK(table.Come(kAgree, "dtype", members, 2, "bf16"));
  EXPECT_THAT(FailureOf(table, "dtype"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 0 has 'f32', rank 1 has 'bf16'"));
  table.Decline("no", members, 2, absl::InternalError("rank 1: no memory"));
  ASSERT_OK(table.Come(kGather, "no", members, 5, ""));
  EXPECT_THAT(FailureOf(table, "no"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 1 will not come: rank 1: no memory"));
}

TEST(MeetingTableTest, WhoIsLostIsCalledByBothItsNumbers) {
  MeetingTable table(6);
  const std::vector<int> ranks = {5, 2};
  const std::vector<int> names = {0, 1};
  const MeetingMembers members(ranks, names);
  ASSERT_OK(table.Come(kGather, "key", members, 5, ""));
  table.Lose(2, absl::AbortedError("rank 2 is lost: killed"));
  for (const char* key : {"key", "later"}) {
    if (table.Find(key) == nullptr) {
      ASSERT_OK(table.Come(kGather, key, members, 5, ""));
    }
    EXPECT_THAT(FailureOf(table, key),
                StatusIs(absl::StatusCode::kAborted,
                         "rank 1 will not come: in the job, rank 2 is lost: "
                         "killed"));
  }
}

TEST(MeetingTableTest, AsManyNamesAsMembers) {
  MeetingTable table(3);
  const std::vector<int> ranks = {0, 1};
  const std::vector<int> names = {0};
  EXPECT_THAT(
      table.Come(kGather, "key", {ranks, names}, 0, ""),
      StatusIs(absl::StatusCode::kInvalidArgument, "1 names of 2 members"));
  // Also where a meeting is open, of which the names are known.
  ASSERT_OK(table.Come(kSplit, "key", {ranks, ranks}, 0, "job\nsplits"));
  EXPECT_THAT(
      table.Come(kSplit, "key", {ranks, names}, 1, "job\nsplits"),
      StatusIs(absl::StatusCode::kInvalidArgument, "1 names of 2 members"));
}

// ---- Splits ----

std::string SplitInto(const std::string& what,
                      const std::string& family = "job") {
  return MeetingTable::SplitPayload(family, absl::StrCat("splits into ", what));
}

TEST(MeetingTableTest, ASplitIsDecidedByTheLastOfItsMembers) {
  MeetingTable table(4);
  ASSERT_OK(table.Come(kSplit, "a", {1, 3}, 3, SplitInto("a")));
  ASSERT_OK(table.Come(kSplit, "b", {0, 2}, 2, SplitInto("b")));
  EXPECT_THAT(FailureOf(table, "a"),
              StatusIs(absl::StatusCode::kUnavailable, "undecided"));
  ASSERT_OK(table.Come(kSplit, "a", {1, 3}, 1, SplitInto("a")));
  ASSERT_OK(FailureOf(table, "a"));
  LeaveAll(&table, "a");
  EXPECT_EQ(table.num_open(), 1u);
}

TEST(MeetingTableTest, RanksThatWaitForEachOtherInDifferentSplitsFailAtOnce) {
  MeetingTable table(3);
  std::vector<std::string> decided;
  ASSERT_OK(table.Come(kSplit, "a", {0, 1}, 1, SplitInto("a"), &decided));
  EXPECT_TRUE(decided.empty());
  ASSERT_OK(table.Come(kSplit, "b", kAll, 0, SplitInto("b"), &decided));
  EXPECT_THAT(decided, ElementsAre("a"));
  for (const char* key : {"a", "b"}) {
    EXPECT_THAT(FailureOf(table, key),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "rank 1 splits into a, while rank 0 splits into b: "
                         "each waits for the other"));
    LeaveAll(&table, key);
  }
  // Nobody who comes late goes on alone.
  ASSERT_OK(table.Come(kSplit, "b", kAll, 2, SplitInto("b")));
  EXPECT_THAT(
      FailureOf(table, "b"),
      StatusIs(absl::StatusCode::kFailedPrecondition, "rank 1 splits into a"));
}

// Rank 1 will come to the other one once it has what it waits for.
TEST(MeetingTableTest, ARankThatWaitsForOneThatIsElsewhereDoesNotCross) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kSplit, "a", {1, 2}, 1, SplitInto("a")));
  ASSERT_OK(table.Come(kSplit, "b", {0, 1}, 0, SplitInto("b")));
  ASSERT_OK(table.Come(kSplit, "a", {1, 2}, 2, SplitInto("a")));
  LeaveAll(&table, "a");
  ASSERT_OK(table.Come(kSplit, "b", {0, 1}, 1, SplitInto("b")));
  EXPECT_OK(FailureOf(table, "b"));
}

TEST(MeetingTableTest, SplitsOfDifferentWorldsDoNotCross) {
  MeetingTable table(2);
  ASSERT_OK(table.Come(kSplit, "a", {0, 1}, 0, SplitInto("a", "job")));
  ASSERT_OK(table.Come(kSplit, "b", {0, 1}, 1, SplitInto("b", "tp")));
  EXPECT_THAT(FailureOf(table, "a"),
              StatusIs(absl::StatusCode::kUnavailable, "undecided"));
}

TEST(MeetingTableTest, ARankSplitsAWorldOnceAtATime) {
  MeetingTable table(3);
  ASSERT_OK(table.Come(kSplit, "a", {0, 1}, 0, SplitInto("a")));
  EXPECT_THAT(table.Come(kSplit, "b", {0, 2}, 0, SplitInto("b")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 0 splits into b, but another of its threads "
                       "splits into a and waits"));
  EXPECT_EQ(table.num_open(), 1u);
  EXPECT_THAT(table.Come(kSplit, "c", {2, 1}, 2, "no family"),
              StatusIs(absl::StatusCode::kInvalidArgument, "family"));
}

}  // namespace
}  // namespace commsched

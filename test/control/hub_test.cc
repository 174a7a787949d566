#include "control/hub.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

// Ranks that have joined, and what was sent to each.
class HubTest : public testing::Test {
 protected:
  HubTest()
      : hub_(3, [this](int rank, SharedFrame frame) {
          sent_[rank].push_back(*frame);
        }) {}

  void JoinAll() {
    for (int rank = 0; rank < 3; ++rank) ASSERT_OK(hub_.Join(rank));
  }

  template <typename Message>
  absl::Status Say(int rank, const Message& message, int64_t now_ns = 0) {
    return hub_.Handle(rank, Message::kKind,
                       Encode(message).substr(kFrameHeaderBytes), now_ns);
  }

  static MeetMessage Meet(uint64_t number, std::string key,
                          std::string payload = "",
                          int64_t timeout_ns = 100 * kMs) {
    MeetMessage message;
    message.number = number;
    message.key = std::move(key);
    message.payload = std::move(payload);
    message.timeout_ns = timeout_ns;
    return message;
  }

  static PutMessage Put(uint64_t number, std::string key, std::string value) {
    PutMessage message;
    message.number = number;
    message.key = std::move(key);
    message.value = std::move(value);
    return message;
  }

  static GetMessage Get(uint64_t number, std::string key,
                        int64_t timeout_ns = 100 * kMs) {
    GetMessage message;
    message.number = number;
    message.key = std::move(key);
    message.timeout_ns = timeout_ns;
    return message;
  }

  // What was sent to `rank` since it was last asked for: "7 OK: a|b",
  // "7 ABORTED: why", "lost 2: why", "failed 5 by 1: why".
  std::vector<std::string> Sent(int rank) {
    std::vector<std::string> texts;
    for (const std::string& frame : std::exchange(sent_[rank], {})) {
      const auto header =
          DecodeFrameHeader(frame.substr(0, kFrameHeaderBytes), 1 << 20);
      const std::string payload = frame.substr(kFrameHeaderBytes);
      if (header->kind == FrameKind::kLost) {
        const auto lost = Decode<LostMessage>(payload);
        texts.push_back(absl::StrCat("lost ", lost->rank, ": ", lost->why));
        continue;
      }
      if (header->kind == FrameKind::kFailed) {
        const auto failed = Decode<FailedMessage>(payload);
        texts.push_back(absl::StrCat("failed ", failed->scope, " by ",
                                     failed->rank, ": ", failed->message));
        continue;
      }
      if (header->kind == FrameKind::kOrdersDiffer) {
        const auto differ = Decode<OrdersDifferMessage>(payload);
        texts.push_back(absl::StrCat(
            differ->topic, ": ", differ->a_first, " has a", differ->a_number,
            " before b", differ->b_number, ", not ", differ->b_first));
        continue;
      }
      const auto reply = Decode<ReplyMessage>(payload);
      std::string text =
          absl::StrCat(reply->number, " ",
                       absl::StatusCodeToString(
                           StatusFrom(reply->code, reply->message).code()),
                       ":");
      if (reply->code != 0) absl::StrAppend(&text, " ", reply->message);
      for (const auto& value : reply->values)
        absl::StrAppend(&text, " ", value);
      texts.push_back(text);
    }
    return texts;
  }

  std::map<int, std::vector<std::string>> sent_;
  Hub hub_;
};

TEST_F(HubTest, RanksWhoseOrdersDifferAreTold) {
  JoinAll();
  OrderMessage order;
  order.slice = {.topic = "a and b", .first = 1, .before = {0}};
  EXPECT_OK(Say(0, order));
  EXPECT_OK(Say(1, order));
  EXPECT_THAT(Sent(0), IsEmpty());
  order.slice.before = {1};
  EXPECT_OK(Say(2, order));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(Sent(rank), ElementsAre("a and b: 0 has a1 before b1, not 2"));
  }
  EXPECT_THAT(Sent(1), IsEmpty());
}

TEST_F(HubTest, AnOrderThatCannotBeBreaksTheRules) {
  JoinAll();
  OrderMessage order;
  order.slice = {.topic = "", .first = 1, .before = {0}};
  EXPECT_THAT(Say(0, order), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

TEST_F(HubTest, RanksJoinOnce) {
  EXPECT_OK(hub_.Join(1));
  EXPECT_THAT(hub_.Join(1), StatusIs(absl::StatusCode::kAlreadyExists,
                                     "rank 1 has already joined"));
  EXPECT_THAT(hub_.Join(3), StatusIs(absl::StatusCode::kInvalidArgument,
                                     "rank 3 is not in 0..2"));
  EXPECT_THAT(hub_.Join(-1),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank -1"));
  hub_.Lose(1, "it was killed");
  EXPECT_THAT(hub_.Join(1), StatusIs(absl::StatusCode::kAlreadyExists, ""));
  EXPECT_EQ(hub_.num_present(), 0);
  EXPECT_EQ(hub_.num_joined(), 1);
}

TEST_F(HubTest, WhoHasNotJoinedIsNamedWhenTheFirstHasWaitedLongEnough) {
  ASSERT_OK(hub_.Join(2, {}, /*now_ns=*/0, 500 * kMs));
  ASSERT_OK(hub_.Join(0, {}, 100 * kMs, 200 * kMs));
  ASSERT_OK(Say(2, Meet(1, "key", "", kNoDeadlineNs)));
  ASSERT_OK(Say(2, Get(2, "id", kNoDeadlineNs)));
  EXPECT_FALSE(hub_.Late(299 * kMs).has_value());
  const auto late = hub_.Late(300 * kMs);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->rank, 1);
  EXPECT_EQ(late->why, "rank 1 of 3 has not joined within 0.2 s");
  hub_.GiveUpLate(*late);
  EXPECT_THAT(
      Sent(2),
      ElementsAre("1 ABORTED: meeting 'key': rank 1 will not come: rank 1 of 3 "
                  "has not joined within 0.2 s",
                  "2 ABORTED: key 'id': rank 1 will not put it: rank 1 of 3 "
                  "has not joined within 0.2 s",
                  "lost 1: rank 1 of 3 has not joined within 0.2 s"));
  EXPECT_FALSE(hub_.Late(300 * kMs).has_value());
  EXPECT_EQ(hub_.num_joined(), 3);
  EXPECT_EQ(hub_.num_present(), 2);
  EXPECT_THAT(hub_.Join(1),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 1 comes too late: rank 1 of 3 has not joined"));
}

TEST_F(HubTest, SeveralThatHaveNotJoinedAreOneSentence) {
  ASSERT_OK(hub_.Join(1, {}, 0, 60'000 * kMs));
  const auto late = hub_.Late(60'000 * kMs);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->why, "ranks 0, 2 of 3 have not joined within 60 s");
  hub_.GiveUpLate(*late);
  EXPECT_THAT(Sent(1), ElementsAre(absl::StrCat("lost 0: ", late->why)));
}

TEST_F(HubTest, NobodyIsLateWhoseJobHasJoined) {
  JoinAll();
  EXPECT_FALSE(hub_.Late(kNoDeadlineNs - 1).has_value());
}

TEST_F(HubTest, ARankCanBeLostBeforeItJoins) {
  ASSERT_OK(hub_.Join(0));
  ASSERT_OK(Say(0, Meet(1, "key")));
  hub_.Lose(2, "process 77 exited with code 1 before it joined");
  EXPECT_THAT(Sent(0), ElementsAre("1 ABORTED: meeting 'key': rank 2 will not "
                                   "come: rank 2 is lost: process 77 exited "
                                   "with code 1 before it joined",
                                   "lost 2: rank 2 is lost: process 77 exited "
                                   "with code 1 before it joined"));
  hub_.Lose(2, "again");
  EXPECT_THAT(Sent(0), IsEmpty());
  EXPECT_THAT(hub_.Join(2), StatusIs(absl::StatusCode::kAborted, "too late"));
  EXPECT_EQ(hub_.num_present(), 1);
  EXPECT_EQ(hub_.num_joined(), 2);
}

TEST_F(HubTest, LinksHaveALimit) {
  const std::string most(kMaxLinksBytes, 'l');
  EXPECT_THAT(hub_.Join(1, {"host", "net", most + "l"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rank 1 joins with a profile of links of 65 bytes; at "
                       "most 64"));
  EXPECT_TRUE(hub_.IsAwaited(1));
  EXPECT_OK(hub_.Join(1, {"host", "net", most}));
}

TEST_F(HubTest, AllLearnWhereAllAre) {
  ASSERT_OK(hub_.Join(1, {"host", "net:1", "links of rank 1"}));
  ASSERT_OK(hub_.Join(0, {"host", "net:2", "links of rank 0"}));
  ASSERT_OK(Say(0, Get(1, Hub::kRosterKey)));
  ASSERT_OK(Say(1, LeaveMessage{}));
  EXPECT_THAT(Sent(0), IsEmpty());
  ASSERT_OK(hub_.Join(2, {"other", "net:1", "links of rank 2"}));
  Roster roster;
  roster.hosts = {"host", "host", "other"};
  roster.networks = {"net:2", "net:1", "net:1"};
  roster.links = "links of rank 0";
  EXPECT_THAT(Sent(0), ElementsAre(absl::StrCat("1 OK: ", roster.Encode())));
  ASSERT_OK_AND_ASSIGN(const Roster read, Roster::Decode(roster.Encode(), 3));
  EXPECT_EQ(read.networks, roster.networks);
  EXPECT_EQ(read.links, roster.links);
  EXPECT_THAT(Roster::Decode(roster.Encode(), 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "not one of 2"));
}

TEST_F(HubTest, AMeetingIsAnsweredWhenTheLastHasCome) {
  JoinAll();
  ASSERT_OK(Say(2, Meet(7, "key", "c")));
  ASSERT_OK(Say(0, Meet(1, "key", "a")));
  EXPECT_THAT(Sent(0), IsEmpty());
  ASSERT_OK(Say(1, Meet(4, "key", "b")));
  EXPECT_THAT(Sent(0), ElementsAre("1 OK: a b c"));
  EXPECT_THAT(Sent(1), ElementsAre("4 OK: a b c"));
  EXPECT_THAT(Sent(2), ElementsAre("7 OK: a b c"));
}

TEST_F(HubTest, AKeyCanBeUsedAgainOnceAllHaveLeft) {
  JoinAll();
  for (uint64_t round = 1; round <= 3; ++round) {
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_OK(Say(rank, Meet(round, "key", absl::StrCat(round))));
    }
    EXPECT_THAT(Sent(0), ElementsAre(absl::StrCat(round, " OK: ", round, " ",
                                                  round, " ", round)));
  }
}

TEST_F(HubTest, TheFirstDeadlineFailsTheMeetingForAll) {
  JoinAll();
  ASSERT_OK(Say(0, Meet(1, "key", "", 50 * kMs), 0));
  ASSERT_OK(Say(1, Meet(2, "key", "", 30 * kMs), 10 * kMs));
  hub_.Tick(39 * kMs);
  EXPECT_THAT(Sent(0), IsEmpty());
  hub_.Tick(40 * kMs);
  const std::string why =
      "meeting 'key': rank 1 waited 30 ms; missing of 3 ranks: 2";
  EXPECT_THAT(Sent(0), ElementsAre("1 DEADLINE_EXCEEDED: " + why));
  EXPECT_THAT(Sent(1), ElementsAre("2 DEADLINE_EXCEEDED: " + why));
  ASSERT_OK(Say(2, Meet(3, "key"), 50 * kMs));
  EXPECT_THAT(Sent(2), ElementsAre("3 DEADLINE_EXCEEDED: " + why));
  hub_.Tick(kNoDeadlineNs);
  EXPECT_THAT(Sent(0), IsEmpty());
}

TEST_F(HubTest, AMeetingWithoutEndOutlivesEveryTick) {
  JoinAll();
  ASSERT_OK(Say(0, Meet(1, "key", "", INT64_MAX), 5));
  hub_.Tick(kNoDeadlineNs - 1);
  EXPECT_THAT(Sent(0), IsEmpty());
}

TEST_F(HubTest, WhoDeclinesIsNamedToAll) {
  JoinAll();
  ASSERT_OK(Say(0, Meet(1, "key")));
  DeclineMessage decline;
  decline.key = "key";
  decline.code = static_cast<uint32_t>(absl::StatusCode::kInvalidArgument);
  decline.message = "no plan";
  ASSERT_OK(Say(2, decline));
  EXPECT_THAT(Sent(0), ElementsAre("1 FAILED_PRECONDITION: meeting 'key': rank "
                                   "2 will not come: no plan"));
  ASSERT_OK(Say(1, Meet(1, "key")));
  EXPECT_THAT(Sent(1), ElementsAre(testing::HasSubstr("rank 2")));
}

TEST_F(HubTest, ALostRankIsToldToAllAndEndsWhatWaitsForIt) {
  JoinAll();
  ASSERT_OK(Say(0, Meet(1, "key")));
  ASSERT_OK(Say(2, Meet(1, "key")));
  hub_.Lose(2, "its connection was closed");
  const std::string why = "rank 2 is lost: its connection was closed";
  EXPECT_THAT(Sent(0),
              ElementsAre("1 ABORTED: meeting 'key': rank 2 left: " + why,
                          "lost 2: " + why));
  EXPECT_THAT(Sent(1), ElementsAre("lost 2: " + why));
  EXPECT_THAT(Sent(2), IsEmpty());
  hub_.Lose(2, "again");
  EXPECT_THAT(Sent(0), IsEmpty());
  ASSERT_OK(Say(1, Meet(9, "next")));
  EXPECT_THAT(
      Sent(1),
      ElementsAre("9 ABORTED: meeting 'next': rank 2 will not come: " + why));
}

TEST_F(HubTest, WhoJoinsLaterLearnsWhoWasLost) {
  ASSERT_OK(hub_.Join(2));
  hub_.Lose(2, "killed");
  ASSERT_OK(hub_.Join(0));
  EXPECT_THAT(Sent(0), IsEmpty());
  hub_.Greet(0);
  EXPECT_THAT(Sent(0), ElementsAre("lost 2: rank 2 is lost: killed"));
}

TEST_F(HubTest, ARankThatLeavesIsNotLost) {
  JoinAll();
  ASSERT_OK(Say(0, Meet(1, "key")));
  ASSERT_OK(Say(2, LeaveMessage{}));
  EXPECT_THAT(Sent(2), ElementsAre("0 OK:"));
  EXPECT_THAT(Sent(0), ElementsAre("1 FAILED_PRECONDITION: meeting 'key': rank "
                                   "2 will not come: it has left the job"));
  EXPECT_OK(Say(2, BeatMessage{}));
  EXPECT_THAT(Say(2, Meet(1, "key")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "comes from a rank that has left"));
  EXPECT_THAT(Sent(1), IsEmpty());
  hub_.Lose(2, "its connection was closed");
  EXPECT_THAT(Sent(1), IsEmpty());
  EXPECT_EQ(hub_.num_present(), 2);
  ASSERT_OK(Say(0, LeaveMessage{}));
  hub_.Lose(1, "killed");
  EXPECT_EQ(hub_.num_present(), 0);
  EXPECT_EQ(hub_.num_joined(), 3);
}

TEST_F(HubTest, AValueIsThereForThoseWhoWaitAndThoseWhoComeLater) {
  JoinAll();
  ASSERT_OK(Say(0, Get(1, "id")));
  ASSERT_OK(Say(1, Put(1, "id", "v")));
  ASSERT_OK(Say(2, Get(5, "id")));
  EXPECT_THAT(Sent(0), ElementsAre("1 OK: v"));
  EXPECT_THAT(Sent(1), ElementsAre("1 OK:"));
  EXPECT_THAT(Sent(2), ElementsAre("5 OK: v"));
  ASSERT_OK(Say(2, Put(6, "id", "w")));
  EXPECT_THAT(Sent(2),
              ElementsAre("6 ALREADY_EXISTS: key 'id' has a value already"));
}

TEST_F(HubTest, AValueThatNobodyPutsIsADeadline) {
  JoinAll();
  ASSERT_OK(Say(0, Get(1, "id", 20 * kMs), 5 * kMs));
  ASSERT_OK(Say(0, Get(2, "id", 20 * kMs), 5 * kMs));
  EXPECT_THAT(Sent(0), ElementsAre("2 ALREADY_EXISTS: rank 0 already waits for "
                                   "key 'id'"));
  hub_.Tick(25 * kMs);
  EXPECT_THAT(Sent(0), ElementsAre("1 DEADLINE_EXCEEDED: rank 0 waited 20 ms "
                                   "for key 'id', which nobody has put"));
}

TEST_F(HubTest, WhoIsGoneWaitsForNothingAndNobodyForWhatItMightPut) {
  JoinAll();
  ASSERT_OK(Say(0, Get(1, "id", 20 * kMs)));
  ASSERT_OK(Say(1, Get(1, "id", 20 * kMs)));
  hub_.Lose(0, "killed");
  EXPECT_THAT(Sent(1),
              ElementsAre("1 ABORTED: key 'id': rank 0 will not put it: rank 0 "
                          "is lost: killed",
                          "lost 0: rank 0 is lost: killed"));
  ASSERT_OK(Say(1, Get(2, "id", 20 * kMs)));
  ASSERT_OK(Say(2, Put(1, "id", "v")));
  hub_.Tick(kNoDeadlineNs);
  EXPECT_THAT(Sent(0), IsEmpty());
  EXPECT_THAT(Sent(1), ElementsAre("2 OK: v"));
}

TEST_F(HubTest, TheStoreHasALimit) {
  JoinAll();
  const std::string large(60 << 20, 'x');
  for (uint64_t i = 1; i <= 4; ++i) {
    ASSERT_OK(Say(0, Put(i, absl::StrCat("key", i), large)));
  }
  Sent(0);
  ASSERT_OK(Say(0, Put(5, "key5", large)));
  EXPECT_THAT(Sent(0), ElementsAre(testing::StartsWith(
                           "5 RESOURCE_EXHAUSTED: value of key 'key5'")));
}

TEST_F(HubTest, AMeetingIsNotAnsweredWithMoreThanAFrame) {
  JoinAll();
  const std::string large(30 << 20, 'x');
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_OK(Say(rank, Meet(1, "key", large)));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Sent(rank),
                ElementsAre("1 RESOURCE_EXHAUSTED: meeting 'key': what its "
                            "ranks have brought exceeds the limit of 67108864 "
                            "bytes together"));
  }
}

TEST_F(HubTest, MistakesInAMeetingAreTheRanksOwn) {
  JoinAll();
  MeetMessage message = Meet(3, "key");
  message.members = {0, 1};
  ASSERT_OK(Say(2, message));
  EXPECT_THAT(Sent(2), ElementsAre("3 INVALID_ARGUMENT: meeting 'key': rank 2 "
                                   "is not among 0, 1"));
}

TEST_F(HubTest, TheFirstFailureOfAScopeIsToldToAllOthers) {
  ASSERT_OK(hub_.Join(0));
  ASSERT_OK(hub_.Join(1));
  FailedMessage failed;
  failed.scope = 5;
  failed.rank = 2;  // The server knows better.
  failed.code = 13;
  failed.message = "why";
  ASSERT_OK(Say(1, failed));
  EXPECT_THAT(Sent(0), ElementsAre("failed 5 by 1: why"));
  EXPECT_THAT(Sent(1), testing::IsEmpty());
  failed.message = "another";
  ASSERT_OK(Say(0, failed));
  EXPECT_THAT(Sent(1), testing::IsEmpty());
  failed.scope = 6;
  ASSERT_OK(Say(0, failed));
  EXPECT_THAT(Sent(1), ElementsAre("failed 6 by 0: another"));
  // Who joins later learns of all.
  ASSERT_OK(hub_.Join(2));
  hub_.Greet(2);
  EXPECT_THAT(Sent(2),
              ElementsAre("failed 5 by 1: why", "failed 6 by 0: another"));
}

TEST_F(HubTest, FailuresAreBounded) {
  JoinAll();
  using absl::StatusCode;
  FailedMessage failed;
  EXPECT_THAT(Say(0, failed), StatusIs(StatusCode::kInvalidArgument, "code 0"));
  failed.code = 2;
  failed.message = std::string(FailedMessage::kMaxMessageBytes + 1, 'x');
  EXPECT_THAT(Say(0, failed),
              StatusIs(StatusCode::kInvalidArgument, "the limit is 4096"));
  failed.message.clear();
  for (; failed.scope < Hub::kMaxFailures; ++failed.scope) {
    ASSERT_OK(Say(0, failed));
  }
  EXPECT_THAT(Say(0, failed),
              StatusIs(StatusCode::kResourceExhausted, "more than 4096"));
}

TEST_F(HubTest, WhatBreaksTheProtocolIsAnError) {
  JoinAll();
  using absl::StatusCode;
  EXPECT_THAT(hub_.Handle(0, FrameKind::kMeet, "short", 0),
              StatusIs(StatusCode::kInvalidArgument, "too short"));
  EXPECT_THAT(hub_.Handle(0, FrameKind::kJoin, "", 0),
              StatusIs(StatusCode::kInvalidArgument, "frame of kind 4"));
  EXPECT_THAT(Say(0, Meet(1, std::string(5000, 'k'))),
              StatusIs(StatusCode::kInvalidArgument,
                       "key of 5000 bytes exceeds the limit of 4096"));
  EXPECT_THAT(Say(0, Meet(1, "key", "", -1)),
              StatusIs(StatusCode::kInvalidArgument, "timeout -1"));
  MeetMessage odd = Meet(1, "key");
  odd.kind = kNumMeetingKinds;
  EXPECT_THAT(Say(0, odd), StatusIs(StatusCode::kInvalidArgument, "kind 5"));
  EXPECT_THAT(Say(0, Get(1, "key", -1)),
              StatusIs(StatusCode::kInvalidArgument, "negative"));
  EXPECT_THAT(Say(0, DeclineMessage{}),
              StatusIs(StatusCode::kInvalidArgument, "without a reason"));
}

// ---- Parts of the job ----

TEST_F(HubTest, WhoWaitsForAValueOfSomeRanksIsNotToldOfTheLossOfOthers) {
  JoinAll();
  GetMessage of_pair = Get(1, "of 0 and 1");
  of_pair.members = {0, 1};
  ASSERT_OK(Say(0, of_pair));
  ASSERT_OK(Say(1, Get(2, "of all")));
  hub_.Lose(2, "killed");
  EXPECT_THAT(Sent(0), ElementsAre("lost 2: rank 2 is lost: killed"));
  EXPECT_THAT(Sent(1),
              ElementsAre("2 ABORTED: key 'of all': rank 2 will not put it: "
                          "rank 2 is lost: killed",
                          "lost 2: rank 2 is lost: killed"));
  ASSERT_OK(Say(1, Put(3, "of 0 and 1", "value")));
  EXPECT_THAT(Sent(0), ElementsAre("1 OK: value"));
  of_pair.number = 4;
  of_pair.key = "again";
  ASSERT_OK(Say(0, of_pair));
  hub_.Lose(1, "killed");
  EXPECT_THAT(Sent(0),
              ElementsAre("4 ABORTED: key 'again': rank 1 will not put it: "
                          "rank 1 is lost: killed",
                          "lost 1: rank 1 is lost: killed"));
}

TEST_F(HubTest, SplitsThatCrossAreAnsweredBoth) {
  JoinAll();
  MeetMessage split = Meet(1, "a", MeetingTable::SplitPayload("job", "does a"));
  split.kind = static_cast<uint32_t>(MeetingKind::kSplit);
  split.members = {0, 1};
  ASSERT_OK(Say(0, split));
  split.key = "b";
  split.payload = MeetingTable::SplitPayload("job", "does b");
  split.members = {0, 1, 2};
  ASSERT_OK(Say(1, split));
  const std::string text =
      "1 FAILED_PRECONDITION: rank 0 does a, while rank 1 does b: each waits "
      "for the other";
  EXPECT_THAT(Sent(0), ElementsAre(text));
  EXPECT_THAT(Sent(1), ElementsAre(text));
  EXPECT_THAT(Sent(2), IsEmpty());
}

}  // namespace
}  // namespace commsched

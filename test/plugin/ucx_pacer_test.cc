// How sends of large launches take turns.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/pacer.h"

namespace commsched {
namespace {

constexpr uint64_t kRoom = 100;
constexpr int64_t kNow = 5;

ucx::Message MessageOf(uint64_t bytes) {
  ucx::Message message;
  message.bytes = bytes;
  return message;
}

TEST(UcxPacerTest, MessagesGoInTheirOrderAsFarAsThereIsRoom) {
  std::vector<ucx::Message> messages = {MessageOf(60), MessageOf(40),
                                        MessageOf(1)};
  ucx::Pacer pacer(kRoom);
  for (ucx::Message& message : messages) pacer.Add(&message, kNow);
  EXPECT_EQ(pacer.Next(kNow), &messages[0]);
  EXPECT_EQ(pacer.Next(kNow), &messages[1]);
  EXPECT_FALSE(pacer.IsDue());
  EXPECT_EQ(pacer.Next(kNow), nullptr);
  pacer.Done(messages[1], kNow);
  EXPECT_TRUE(pacer.IsDue());
  EXPECT_EQ(pacer.Next(kNow), &messages[2]);
  EXPECT_FALSE(pacer.IsWaiting());
  EXPECT_EQ(pacer.Next(kNow), nullptr);
}

TEST(UcxPacerTest, WhatIsAwaitedGoesFirstInItsOwnOrder) {
  std::vector<ucx::Message> messages(5, MessageOf(kRoom));
  ucx::Pacer pacer(kRoom);
  const auto next = [&] {
    ucx::Message* const message = pacer.Next(kNow);
    if (message != nullptr) pacer.Done(*message, kNow);
    return message;
  };
  pacer.Add(&messages[3], kNow);
  pacer.Add(&messages[0], kNow, /*is_awaited=*/true);
  pacer.Add(&messages[1], kNow, /*is_awaited=*/true);
  EXPECT_EQ(next(), &messages[0]);
  EXPECT_EQ(next(), &messages[1]);
  pacer.Add(&messages[2], kNow, /*is_awaited=*/true);
  pacer.Add(&messages[4], kNow);
  for (size_t i = 2; i < messages.size(); ++i) {
    EXPECT_EQ(next(), &messages[i]) << i;
  }
  EXPECT_FALSE(pacer.IsWaiting());
  pacer.Add(&messages[0], kNow, /*is_awaited=*/true);
  pacer.Add(&messages[1], kNow);
  EXPECT_EQ(next(), &messages[0]);
  EXPECT_EQ(next(), &messages[1]);
}

TEST(UcxPacerTest, AMessageAboveTheRoomGoesAlone) {
  std::vector<ucx::Message> messages = {MessageOf(1), MessageOf(kRoom + 1)};
  ucx::Pacer pacer(kRoom);
  for (ucx::Message& message : messages) pacer.Add(&message, kNow);
  EXPECT_EQ(pacer.Next(kNow), &messages[0]);
  EXPECT_EQ(pacer.Next(kNow), nullptr);
  pacer.Done(messages[0], kNow);
  EXPECT_EQ(pacer.Next(kNow), &messages[1]);
}

TEST(UcxPacerTest, WhoTakesNothingHoldsUpTheOthersForAWhileOnly) {
  std::vector<ucx::Message> messages = {MessageOf(kRoom), MessageOf(kRoom),
                                        MessageOf(kRoom), MessageOf(kRoom)};
  ucx::Pacer pacer(kRoom);
  for (ucx::Message& message : messages) pacer.Add(&message, kNow);
  EXPECT_EQ(pacer.Next(kNow), &messages[0]);
  pacer.Done(messages[0], kNow + 1);
  EXPECT_EQ(pacer.Next(kNow + 1), &messages[1]);
  const int64_t stalls_at = kNow + 1 + ucx::Pacer::kStallNs;
  EXPECT_EQ(pacer.StallsAtNs(), stalls_at);
  EXPECT_EQ(pacer.Next(stalls_at - 1), nullptr);
  EXPECT_EQ(pacer.Next(stalls_at), &messages[2]);
  EXPECT_EQ(pacer.Next(stalls_at), &messages[3]);
}

TEST(UcxPacerTest, WhoTakesNothingHoldsUpTheOthersOnce) {
  std::vector<ucx::Message> messages = {MessageOf(kRoom), MessageOf(kRoom),
                                        MessageOf(kRoom), MessageOf(kRoom)};
  ucx::Pacer pacer(kRoom);
  pacer.Add(&messages[0], kNow);
  EXPECT_EQ(pacer.Next(kNow), &messages[0]);
  pacer.Add(&messages[1], kNow);
  const int64_t stalls_at = kNow + ucx::Pacer::kStallNs;
  EXPECT_EQ(pacer.Next(stalls_at), &messages[1]);
  pacer.Done(messages[1], stalls_at);
  pacer.Add(&messages[2], stalls_at + 1);
  EXPECT_TRUE(pacer.IsDue());
  EXPECT_EQ(pacer.Next(stalls_at + 1), &messages[2]);
  pacer.Done(messages[2], stalls_at + 2);
  pacer.Done(messages[0], stalls_at + 2);
  pacer.Add(&messages[3], stalls_at + 3);
  EXPECT_EQ(pacer.Next(stalls_at + 3), &messages[3]);
  pacer.Add(&messages[0], stalls_at + 3);
  EXPECT_EQ(pacer.Next(stalls_at + 3), nullptr);
}

// The time in which there is nothing to send is no stall.
TEST(UcxPacerTest, TheFirstToWaitWaitsAsLong) {
  std::vector<ucx::Message> messages = {MessageOf(kRoom), MessageOf(kRoom)};
  ucx::Pacer pacer(kRoom);
  pacer.Add(&messages[0], kNow);
  EXPECT_EQ(pacer.Next(kNow), &messages[0]);
  const int64_t late = kNow + 2 * ucx::Pacer::kStallNs;
  pacer.Add(&messages[1], late);
  EXPECT_EQ(pacer.Next(late), nullptr);
  EXPECT_EQ(pacer.StallsAtNs(), late + ucx::Pacer::kStallNs);
}

TEST(UcxPacerTest, WhatIsDroppedTakesNoRoom) {
  std::vector<ucx::Message> messages = {MessageOf(kRoom), MessageOf(kRoom)};
  ucx::Pacer pacer(kRoom);
  for (ucx::Message& message : messages) pacer.Add(&message, kNow);
  EXPECT_EQ(pacer.Drop(), &messages[0]);
  EXPECT_FALSE(messages[0].is_paced);
  EXPECT_EQ(pacer.Next(kNow), &messages[1]);
  EXPECT_TRUE(messages[1].is_paced);
  EXPECT_EQ(pacer.Drop(), nullptr);
}

}  // namespace
}  // namespace commsched

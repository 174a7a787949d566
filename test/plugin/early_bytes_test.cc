// How far ahead of others a member sends.
#include "plugins/ucx/network/early_bytes.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(EarlyBytesTest, NobodyIsAskedAboutLittle) {
  ucx::EarlyBytes early(/*num_peers=*/2, /*most_bytes=*/100);
  early.Sent(0, 1, 50);
  EXPECT_FALSE(early.has_questions());
  EXPECT_EQ(early.TakeQuestion(0), 0u);
  EXPECT_FALSE(early.any_is_behind());
}

TEST(EarlyBytesTest, FromTheHalfOnThePeerIsAskedOnce) {
  ucx::EarlyBytes early(2, 100);
  early.Sent(0, 1, 51);
  EXPECT_TRUE(early.has_questions());
  EXPECT_EQ(early.TakeQuestion(1), 0u);
  EXPECT_EQ(early.TakeQuestion(0), 1u);
  EXPECT_FALSE(early.has_questions());
  early.Sent(0, 2, 10);
  EXPECT_EQ(early.TakeQuestion(0), 0u);
}

TEST(EarlyBytesTest, WhoHasBeenSentSoMuchIsBehindUntilItHasPosted) {
  ucx::EarlyBytes early(2, 100);
  early.Sent(0, 1, 60);
  early.Sent(0, 2, 39);
  EXPECT_FALSE(early.IsBehind(0));
  early.Sent(0, 3, 1);
  EXPECT_TRUE(early.IsBehind(0));
  EXPECT_FALSE(early.IsBehind(1));
  EXPECT_TRUE(early.any_is_behind());
  early.Posted(0, 1);
  EXPECT_FALSE(early.any_is_behind());
}

TEST(EarlyBytesTest, WhatIsLeftAboveTheHalfIsAskedAbout) {
  ucx::EarlyBytes early(1, 100);
  early.Sent(0, 1, 60);
  EXPECT_EQ(early.TakeQuestion(0), 1u);
  early.Sent(0, 2, 30);
  early.Sent(0, 3, 100);
  early.Posted(0, 1);
  EXPECT_TRUE(early.IsBehind(0));
  EXPECT_EQ(early.TakeQuestion(0), 3u);
  early.Posted(0, 2);
  EXPECT_TRUE(early.IsBehind(0));
  early.Posted(0, 4);
  EXPECT_FALSE(early.IsBehind(0));
  EXPECT_EQ(early.TakeQuestion(0), 0u);
}

TEST(EarlyBytesTest, BytesOfOneCollectiveArePostedTogether) {
  ucx::EarlyBytes early(1, 100);
  for (int i = 0; i < 4; ++i) early.Sent(0, 1, 60);
  EXPECT_TRUE(early.IsBehind(0));
  early.Posted(0, 1);
  EXPECT_FALSE(early.IsBehind(0));
  EXPECT_FALSE(early.has_questions());
}

TEST(EarlyBytesTest, WhatIsKnownInTimeIsNotAsked) {
  ucx::EarlyBytes early(1, 100);
  for (uint64_t number = 1; number < 9; ++number) {
    early.Sent(0, number, 90);
    EXPECT_TRUE(early.has_questions());
    early.Posted(0, number);
    EXPECT_FALSE(early.has_questions());
  }
  EXPECT_EQ(early.TakeQuestion(0), 0u);
}

TEST(EarlyBytesTest, OfOneByteEachCollectiveIsWaitedFor) {
  ucx::EarlyBytes early(1, 1);
  early.Sent(0, 1, 0);
  EXPECT_FALSE(early.IsBehind(0));
  early.Sent(0, 2, 1);
  EXPECT_TRUE(early.IsBehind(0));
  EXPECT_EQ(early.TakeQuestion(0), 2u);
  early.Posted(0, 2);
  EXPECT_FALSE(early.IsBehind(0));
}

}  // namespace
}  // namespace commsched

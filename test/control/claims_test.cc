#include "control/claims.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

bool Hold(const std::vector<std::vector<Claim>>& by_rank) {
  ClaimTally tally;
  for (const std::vector<Claim>& claims : by_rank) tally.Add(claims);
  return tally.Hold();
}

TEST(ClaimsTest, NothingHolds) {
  EXPECT_TRUE(Hold({}));
  EXPECT_TRUE(Hold({{}, {}}));
}

TEST(ClaimsTest, OneSubjectHasOneValue) {
  const Claim f32 = Claim::Of("dtype", "f32");
  const Claim bf16 = Claim::Of("dtype", "bf16");
  EXPECT_TRUE(Hold({{f32}, {f32}, {}}));
  EXPECT_FALSE(Hold({{f32}, {}, {bf16}}));
  EXPECT_TRUE(Hold({{f32}, {Claim::Of("reduce dtype", "bf16")}}));
}

TEST(ClaimsTest, HoldersAreAsManyAsClaimed) {
  const Claim pair = Claim::Of("group", "a", 2);
  EXPECT_TRUE(Hold({{pair}, {}, {pair}}));
  EXPECT_FALSE(Hold({{pair}, {}, {}}));
  EXPECT_FALSE(Hold({{pair}, {pair}, {pair}}));
  EXPECT_FALSE(Hold({{pair}, {Claim::Of("group", "a", 3)}}));
}

TEST(ClaimsTest, BytesGiveTheSameClaims) {
  const std::vector<Claim> claims = {Claim::Of("a", "1", 7),
                                     Claim::Of("b", "")};
  const auto read = DecodeClaims(EncodeClaims(claims));
  ASSERT_OK(read.status());
  ASSERT_EQ(read->size(), claims.size());
  for (size_t i = 0; i < claims.size(); ++i) {
    EXPECT_EQ((*read)[i].subject, claims[i].subject);
    EXPECT_TRUE((*read)[i].SameValue(claims[i]));
  }
}

TEST(ClaimsTest, BytesOfHalfAClaimAreRefused) {
  const std::string bytes = EncodeClaims({Claim::Of("a", "1")});
  EXPECT_THAT(DecodeClaims(bytes + "x").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "29 bytes"));
}

}  // namespace
}  // namespace commsched

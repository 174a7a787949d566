// Tiles and late-bound buffers through all passes.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/launch_reason.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::LaunchNames;
using test::MakePlan;
using test::Merging;
using test::Range;
using test::Read;
using test::Spec;
using test::Tile;
using test::Waits;
using test::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kAllToAll = CollectiveKind::kAllToAll;

// Heads [16 tokens, 4 x 8] are exchanged in two chunks of columns, each as
// soon as its projection is done.
class HeadChunksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sp_ = builder_.Group("sp", 2);
    heads_ = builder_.Buffer("heads", kTokens * kWidth);
    mine_ = builder_.Buffer("mine", kTokens * kWidth);
  }
  Region Chunk(int chunk) const {
    return Tile(chunk * kWidth / 2, kWidth / 2, kTokens, kWidth);
  }
  void AddChunk(int chunk) {
    const Region dense =
        Range(chunk * kTokens * kWidth / 2, kTokens * kWidth / 2);
    builder_.Compute(absl::StrCat("project", chunk),
                     {Write(heads_, Chunk(chunk))});
    builder_.Collective(
        absl::StrCat("exchange", chunk),
        Spec(kAllToAll, sp_, Read(heads_, Chunk(chunk)), Write(mine_, dense)));
  }

  static constexpr uint64_t kTokens = 16;
  static constexpr uint64_t kWidth = 32;
  GraphBuilder builder_;
  GroupId sp_;
  BufferId heads_, mine_;
};

TEST_F(HeadChunksTest, EachExchangeWaitsForItsOwnColumnsOnly) {
  AddChunk(0);
  AddChunk(1);
  const auto plan = MakePlan(builder_.graph());
  ASSERT_NE(plan, nullptr);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("exchange0", "exchange1"));
  EXPECT_THAT(Waits(*plan, "exchange0"), ElementsAre("project0"));
  EXPECT_THAT(Waits(*plan, "exchange1"), ElementsAre("project1"));
  EXPECT_THAT(Waits(*plan, "project0"), ElementsAre("#0-1"));
  EXPECT_THAT(Waits(*plan, "project1"), ElementsAre("#1-1"));
  EXPECT_EQ(plan->due_after[0], 1u);  // before project1
}

TEST_F(HeadChunksTest, TileIsPackedThoughItIsAlone) {
  AddChunk(0);
  const auto plan = MakePlan(builder_.graph());
  ASSERT_NE(plan, nullptr);
  const Launch& launch = plan->launches[0];
  const uint64_t bytes = kTokens * kWidth / 2 * sizeof(float);
  EXPECT_EQ(launch.way, Way::kPack);
  EXPECT_EQ(launch.payload_bytes, bytes);
  EXPECT_EQ(launch.staging_bytes, 2 * bytes);
  EXPECT_EQ(plan->arena_bytes, 2 * bytes);
  EXPECT_THAT(ReasonText(*plan, launch),
              HasSubstr("pack: the rows of a tile are copied"));
}

TEST_F(HeadChunksTest, TilesTravelTogetherButNotWithOthers) {
  const BufferId other = builder_.Buffer("other", 64);
  const BufferId result = builder_.Buffer("result", 64);
  builder_.Compute("make", {Write(heads_), Write(other)});
  for (int chunk = 0; chunk < 2; ++chunk) {
    builder_.Collective(absl::StrCat("exchange", chunk),
                        Spec(kAllToAll, sp_, Read(heads_, Chunk(chunk)),
                             Write(mine_, Range(chunk * kTokens * kWidth / 2,
                                                kTokens * kWidth / 2))));
  }
  builder_.Collective("dense",
                      Spec(kAllToAll, sp_, Read(other), Write(result)));
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  ASSERT_NE(plan, nullptr);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("exchange0+exchange1", "dense"));
  EXPECT_EQ(plan->launches[0].way, Way::kPack);
  EXPECT_EQ(plan->launches[1].way, Way::kSingle);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("it and 'dense' are not both tiles of equal parts"));
}

TEST_F(HeadChunksTest, UnevenTilesTravelAlone) {
  builder_.Compute("make", {Write(heads_)});
  for (int chunk = 0; chunk < 2; ++chunk) {
    CollectiveSpec spec = Spec(kAllToAll, sp_, Read(heads_, Chunk(chunk)),
                               Write(mine_, Range(chunk * 256, 256)));
    spec.counts = {64, 128, 128, 64};
    builder_.Collective(absl::StrCat("exchange", chunk), spec);
  }
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  ASSERT_NE(plan, nullptr);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("exchange0", "exchange1"));
  EXPECT_EQ(plan->launches[0].way, Way::kPack);
}

TEST_F(HeadChunksTest, MissingWaitBetweenTilesIsFound) {
  AddChunk(0);
  AddChunk(1);
  Plan plan = *MakePlan(builder_.graph());
  plan.nodes[plan.node_of_op[builder_.graph().FindOp("project1")->value()]]
      .waits.clear();
  EXPECT_THAT(
      VerifyPlan(plan),
      StatusIs(absl::StatusCode::kInternal,
               "race on buffer 'heads': write-after-read: nothing makes "
               "'project1' wait for 'exchange1' of the step before"));
}

// Tiles of two strides are taken for what they span, by who infers and by who
// verifies.
TEST_F(HeadChunksTest, TilesOfSeveralStridesArePlanned) {
  builder_.Compute("a", {Write(heads_, Tile(0, 8, 16, 32))});
  builder_.Compute("b", {Write(heads_, Tile(8, 8, 8, 64))});
  builder_.Compute("c", {Read(heads_, Tile(16, 8, 16, 32))});
  const auto plan = MakePlan(builder_.graph());
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->nodes[2].after.size(), 2u);
}

TEST_F(HeadChunksTest, FingerprintCoversTheTile) {
  const auto plan_of = [](uint64_t stride) {
    GraphBuilder b;
    const BufferId x = b.Buffer("x", 64);
    b.AllReduce("sum", b.Group("dp", 2), x, Tile(0, 4, 4, stride));
    return MakePlan(b.graph());
  };
  EXPECT_EQ(plan_of(8)->fingerprint, plan_of(8)->fingerprint);
  EXPECT_NE(plan_of(8)->fingerprint, plan_of(16)->fingerprint);
}

TEST(LateBoundPlanTest, IsListedNeverPacked) {
  GraphBuilder b;
  const GroupId ep = b.Group("ep", 2);
  BufferId fresh[2], result[2];
  for (int i = 0; i < 2; ++i) {
    fresh[i] = b.Buffer(absl::StrCat("fresh", i), 64, Ownership::kLateBound);
    result[i] = b.Buffer(absl::StrCat("result", i), 64, Ownership::kLateBound);
  }
  b.Compute("route", {Write(fresh[0]), Write(fresh[1]), Write(result[0]),
                      Write(result[1])});
  for (int i = 0; i < 2; ++i) {
    b.Collective(absl::StrCat("exchange", i),
                 Spec(kAllToAll, ep, Read(fresh[i]), Write(result[i])));
  }
  b.Compute("expert", {Read(result[0]), Read(result[1])});
  CostProfile fast_copies;
  fast_copies.copy_bytes_per_s = 1e15;  // packing would be chosen
  auto built = BuildPlan(b.graph(), Merging(1 << 20), fast_copies);
  if (built.status().code() == absl::StatusCode::kUnimplemented) {
    GTEST_SKIP() << built.status().message();
  }
  ASSERT_OK(built);
  const Plan& plan = **built;
  EXPECT_THAT(LaunchNames(plan), ElementsAre("exchange0+exchange1"));
  EXPECT_EQ(plan.launches[0].way, Way::kGroup);
  EXPECT_EQ(plan.launches[0].payload_bytes, 2u * 256);
  EXPECT_EQ(plan.arena_bytes, 0u);
  EXPECT_THAT(ReasonText(plan, plan.launches[0]),
              HasSubstr("late-bound buffers are not packed"));
}

}  // namespace
}  // namespace commsched

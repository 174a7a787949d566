#include "plan/partition.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/verify/verify.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::Range;
using test::Read;
using test::ReadWrite;
using test::Spec;
using test::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanOptions Splitting(uint64_t bytes) {
  PlanOptions options;
  options.partition_bytes = bytes;
  return options;
}

std::vector<Piece> Pieces(const Plan& plan) {
  std::vector<Piece> pieces;
  for (const Launch& launch : plan.launches) pieces.push_back(launch.piece);
  return pieces;
}

// make -> all-reduce of `count` floats -> use.
Graph OneReduction(uint64_t count, int ranks = 4) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", count);
  b.Compute("make", {Write(x)});
  b.AllReduce("ar", b.Group("dp", ranks), x);
  b.Compute("use", {Read(x)});
  return b.graph();
}

TEST(PartitionTest, SplitsInEqualAlignedPieces) {
  const auto plan = MakePlan(OneReduction(1000), Splitting(1600));
  // 4000 bytes in three: 334 elements each, rounded up to 384.
  EXPECT_THAT(Pieces(*plan),
              ElementsAre(Piece{0, 3, 0, 384}, Piece{1, 3, 384, 384},
                          Piece{2, 3, 768, 232}));
  EXPECT_EQ(plan->launches[0].payload_bytes, 4u * 384);
  EXPECT_EQ(plan->launches[2].payload_bytes, 4u * 232);
  EXPECT_THAT(ReasonText(*plan, plan->launches[1]),
              HasSubstr("piece 2 of 3: the whole is above 1600 bytes"));
}

TEST(PartitionTest, WhatIsWithinTheLimitStaysWhole) {
  const auto plan = MakePlan(OneReduction(1000), Splitting(4000));
  EXPECT_THAT(Pieces(*plan), ElementsAre(Piece{}));
  EXPECT_TRUE(plan->pieces.empty());
}

TEST(PartitionTest, ZeroSplitsNothing) {
  EXPECT_EQ(MakePlan(OneReduction(1 << 20))->launches.size(), 1u);
}

TEST(PartitionTest, MakesNoMoreThanTheMostPieces) {
  const auto plan = MakePlan(OneReduction(1 << 20), Splitting(1));
  EXPECT_EQ(plan->launches.size(), kMaxPieces);
}

TEST(PartitionTest, PiecesTooSmallToAlignAreEqual) {
  const auto plan = MakePlan(OneReduction(10), Splitting(16));
  EXPECT_THAT(Pieces(*plan), ElementsAre(Piece{0, 3, 0, 4}, Piece{1, 3, 4, 4},
                                         Piece{2, 3, 8, 2}));
}

// Of a kind with parts a piece takes the same elements of each.
TEST(PartitionTest, CountsElementsOfAPart) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 4);
  const BufferId x = b.Buffer("x", 4096);
  const BufferId shard = b.Buffer("shard", 1024);
  b.Compute("make", {Write(x)});
  b.ReduceScatter("rs", dp, Read(x), Write(shard));
  b.AllGather("ag", dp, x);
  const auto plan = MakePlan(b.graph(), Splitting(8192));
  EXPECT_THAT(Pieces(*plan),
              ElementsAre(Piece{0, 2, 0, 512}, Piece{1, 2, 512, 512},
                          Piece{0, 2, 0, 512}, Piece{1, 2, 512, 512}));
  EXPECT_EQ(plan->launches[0].payload_bytes, 8192u);
}

TEST(PartitionTest, EveryPieceHasTheDependenciesAndTheLastOneTheConsumers) {
  const auto plan = MakePlan(OneReduction(1000), Splitting(2000));
  const OpId ar = *plan->graph->FindOp("ar");
  EXPECT_THAT(plan->LaunchesOf(ar), ElementsAre(LaunchId(0), LaunchId(1)));
  EXPECT_EQ(plan->launch_of_op[ar.value()], LaunchId(1));
  for (const Launch& launch : plan->launches) {
    EXPECT_THAT(launch.producers, ElementsAre(*plan->graph->FindOp("make")));
    ASSERT_EQ(launch.waits.size(), 1u);
    EXPECT_EQ(launch.waits[0].producer.index, 0u);
  }
  EXPECT_THAT(test::Waits(*plan, "use"), ElementsAre("#1"));
}

TEST(PartitionTest, MergingStaysBelowTheLimitOfSplitting) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId flat = b.Buffer("flat", 4096);
  b.Compute("make", {Write(flat)});
  for (uint64_t i = 0; i < 4; ++i) {
    b.AllReduce(absl::StrCat("ar", i), dp, flat, Range(1024 * i, 1024));
  }
  PlanOptions options = Splitting(8192);
  options.coalesce_bytes = 1 << 20;
  const auto plan = MakePlan(b.graph(), options);
  EXPECT_THAT(test::LaunchNames(*plan), ElementsAre("ar0+ar1", "ar2+ar3"));
}

TEST(PartitionTest, SaysWhatStaysWhole) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const GroupId self = b.Group("self", 1);
  const BufferId x = b.Buffer("x", 4096);
  const BufferId y = b.Buffer("y", 4096);
  b.Compute("make", {Write(x)});
  b.AllReduce("alone", self, x);
  auto uneven = Spec(CollectiveKind::kReduceScatter, dp, Read(x),
                     Write(y, Range(0, 2049)));
  uneven.counts = {2047, 2049};
  b.Collective("uneven", uneven);
  const auto plan = MakePlan(b.graph(), Splitting(1024));
  ASSERT_EQ(plan->launches.size(), 2u);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("not split: a group of one moves nothing"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[1]),
              HasSubstr("not split: uneven counts"));
}

// Memory that pieces take over is handed to each of them.
TEST(PartitionTest, EveryPieceWaitsForWhoHadItsMemory) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId in = b.Buffer("in", 1024);
  const BufferId old = b.Buffer("old", 2048, Ownership::kOwned);
  const BufferId full = b.Buffer("full", 2048, Ownership::kOwned);
  b.Compute("make", {Write(old)});
  b.Compute("beside", {Read(old)}, test::OnLane(1));
  b.Compute("use_old", {Read(old), Write(in)});
  b.Collective("ag",
               Spec(CollectiveKind::kAllGather, dp, Read(in), Write(full)));
  b.Compute("use", {Read(full)});
  PlanOptions options = Splitting(4096);
  options.arena_bytes = 8192;
  const auto plan = MakePlan(b.graph(), options);
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->launches.size(), 2u);
  auto of_arena = [](const Wait& wait) {
    return wait.cause == WaitCause::kArena;
  };
  for (const Launch& launch : plan->launches) {
    EXPECT_EQ(std::count_if(launch.waits.begin(), launch.waits.end(), of_arena),
              1);
  }
  Plan broken = *plan;
  WaitList& waits = broken.launches[1].waits;
  waits.erase(std::remove_if(waits.begin(), waits.end(), of_arena),
              waits.end());
  EXPECT_THAT(VerifyPlan(broken),
              StatusIs(absl::StatusCode::kInternal, "race in the arena"));
}

class PieceVerifyTest : public ::testing::Test {
 protected:
  PieceVerifyTest() : plan_(*MakePlan(OneReduction(1000), Splitting(1600))) {}
  void ExpectRefused(const std::string& message) {
    EXPECT_THAT(VerifyPlan(plan_),
                StatusIs(absl::StatusCode::kInternal, message));
  }
  Plan plan_;
};

TEST_F(PieceVerifyTest, AGapIsRefused) {
  plan_.launches[1].piece.offset += 64;
  ExpectRefused("the pieces of 'ar' leave a gap or overlap");
}

TEST_F(PieceVerifyTest, TooShortACoverIsRefused) {
  plan_.launches[2].piece.count -= 1;
  ExpectRefused("the pieces of 'ar' cover 999 of 1000 elements");
}

TEST_F(PieceVerifyTest, APieceOnAnotherLaneIsRefused) {
  plan_.launches[1].lane = 1;
  ExpectRefused("the pieces of 'ar' are on several lanes");
}

TEST_F(PieceVerifyTest, AnUnlistedPieceIsRefused) {
  plan_.pieces.clear();
  ExpectRefused("3 launches are pieces; 0 are listed");
}

TEST_F(PieceVerifyTest, APieceThatDoesNotWaitIsARace) {
  plan_.launches[1].waits.clear();
  ExpectRefused("race on buffer 'x'");
}

TEST_F(PieceVerifyTest, AConsumerOfTheFirstPieceAloneIsARace) {
  ComputeNode& use = plan_.nodes.back();
  ASSERT_EQ(use.waits.size(), 1u);
  use.waits[0].producer.index = 0;
  ExpectRefused("race on buffer 'x'");
}

// "sum" of 1000 floats that two roles share: of a buffer, or of a tile.
Graph SharedReduction(bool of_tile) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 2000);
  const Region region = of_tile ? test::Tile(0, 10, 100, 20) : Range(0, 1000);
  b.Compute("make", {Write(x)});
  b.AllReduce("sum", b.Group("all", 2), x, region);
  b.Compute("use", {Read(x)});
  return b.graph();
}

std::vector<std::shared_ptr<const Plan>> SharedPlans(const Graph& first,
                                                     const Graph& second) {
  std::vector<RoleSpec> roles(2);
  roles[0].graph = &first;
  roles[1].graph = &second;
  for (RoleSpec& role : roles) role.role_of_member = {{0, 1}};
  auto plans = BuildPlans(roles, Splitting(1600));
  EXPECT_OK(plans);
  return plans.ok() ? *plans : std::vector<std::shared_ptr<const Plan>>();
}

TEST(PartitionTest, RolesSplitWhatTheyShareAlike) {
  const auto plans =
      SharedPlans(SharedReduction(false), SharedReduction(false));
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0]->launches.size(), 3u);
  EXPECT_EQ(Pieces(*plans[0]), Pieces(*plans[1]));
  for (size_t i = 0; i < plans[0]->launches.size(); ++i) {
    EXPECT_EQ(plans[0]->launches[i].key, plans[1]->launches[i].key);
  }
  EXPECT_EQ(plans[0]->group_fingerprints, plans[1]->group_fingerprints);
}

TEST(PartitionTest, WhatOneRoleCannotSplitStaysWholeInAll) {
  const auto plans = SharedPlans(SharedReduction(false), SharedReduction(true));
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_THAT(Pieces(*plans[0]), ElementsAre(Piece{}));
  EXPECT_THAT(Pieces(*plans[1]), ElementsAre(Piece{}));
  EXPECT_EQ(plans[0]->launches[0].way, Way::kSingle);
  EXPECT_EQ(plans[1]->launches[0].way, Way::kPack);
  EXPECT_EQ(plans[0]->group_fingerprints, plans[1]->group_fingerprints);
}

}  // namespace
}  // namespace commsched

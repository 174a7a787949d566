// Plans ask for nothing that their backend cannot do.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/explain/launch_reason_text.h"
#include "test/plan/plan_test_support.h"
#include "test/support/property.h"
#include "test/support/random_step.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::LaunchNames;
using test::MakePlan;
using test::Merging;
using test::Read;
using test::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two buffers, large enough that a list costs less than copies, are reduced.
Graph TwoReductions() {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 1 << 20);
  const BufferId y = b.Buffer("y", 1 << 20);
  b.Compute("make", {Write(x), Write(y)});
  const GroupId dp = b.Group("dp", 4);
  b.AllReduce("ar.x", dp, x);
  b.AllReduce("ar.y", dp, y);
  b.Compute("use", {Read(x), Read(y)});
  return b.graph();
}

TEST(BackendModelTest, WithoutListsWhatIsMergedIsPacked) {
  PlanOptions options = Merging(uint64_t{1} << 30);
  const auto list = MakePlan(TwoReductions(), options);
  EXPECT_EQ(list->launches[0].way, Way::kGroup);
  options.backend.lists = false;
  const auto packed = MakePlan(TwoReductions(), options);
  EXPECT_THAT(LaunchNames(*packed), ElementsAre("ar.x+ar.y"));
  EXPECT_EQ(packed->launches[0].way, Way::kPack);
  EXPECT_THAT(ReasonText(*packed, packed->launches[0]),
              HasSubstr("pack: the backend takes no lists"));
  EXPECT_NE(list->fingerprint, packed->fingerprint);
}

TEST(BackendModelTest, WithoutStridesPartsStayWhole) {
  GraphBuilder b;
  const BufferId all = b.Buffer("all", 4000);
  b.Compute("make", {Write(all)});
  b.AllGather("ag", b.Group("dp", 4), all);
  b.Compute("use", {Read(all)});
  PlanOptions options;
  options.partition_bytes = 4096;
  EXPECT_GT(MakePlan(b.graph(), options)->launches.size(), 1u);
  options.backend.strided = false;
  const auto whole = MakePlan(b.graph(), options);
  ASSERT_EQ(whole->launches.size(), 1u);
  EXPECT_THAT(ReasonText(*whole, whole->launches[0]),
              HasSubstr("the backend moves dense parts only"));
}

TEST(BackendModelTest, WhatItCannotDoAtAllIsNamed) {
  const auto refused = [](auto change, const char* why) {
    PlanOptions options;
    options.deterministic = true;
    change(&options.backend);
    EXPECT_THAT(BuildPlan(TwoReductions(), options, {}),
                StatusIs(absl::StatusCode::kFailedPrecondition, why));
  };
  refused([](BackendModel* b) { b->deterministic = false; },
          "collective 'ar.x': the backend cannot sum in the order of the tree");
  refused([](BackendModel* b) { b->kinds = 1u << 3; },
          "'ar.x': the backend cannot do all_reduce");
  refused([](BackendModel* b) { b->dtypes = 1u << 7; },
          "'ar.x': the backend cannot move f32");
  refused([](BackendModel* b) { b->reductions = 1u << 4; },
          "'ar.x': the backend cannot reduce by sum");
}

// A coded reduce-scatter travels as an all-to-all of bytes, which nobody sums.
TEST(BackendModelTest, WhatTravelsEncodedIsWhatTheBackendMustDo) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 4);
  const BufferId x = b.Buffer("x", 4000);
  b.Compute("make", {Write(x)});
  Op op;
  op.name = "rs";
  op.kind = OpKind::kCollective;
  op.collective.kind = CollectiveKind::kReduceScatter;
  op.collective.group = dp;
  op.collective.lossy = true;
  op.collective.input = Read(x);
  Region shard;
  shard.kind = RegionKind::kShard;
  shard.group = dp;
  op.collective.output = {x, AccessMode::kWrite, shard};
  Graph graph = b.graph();
  ASSERT_OK(graph.AddOp(op));
  PlanOptions options;
  options.codec = {.name = "half",
                   .block_elements = 4,
                   .block_bytes = 8,
                   .dtypes = 1u << static_cast<uint32_t>(DType::kF32)};
  options.backend.kinds = 1u
                          << static_cast<uint32_t>(CollectiveKind::kAllToAll);
  options.backend.dtypes = 1u << static_cast<uint32_t>(DType::kU8);
  options.backend.reductions = 0;
  EXPECT_OK(BuildPlan(graph, options, {}));
  options.backend.dtypes = 1u << static_cast<uint32_t>(DType::kF32);
  EXPECT_THAT(BuildPlan(graph, options, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'rs': the backend cannot move u8"));
  options.backend.kinds =
      1u << static_cast<uint32_t>(CollectiveKind::kReduceScatter);
  EXPECT_THAT(BuildPlan(graph, options, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'rs': the backend cannot do all_to_all"));
}

TEST(BackendModelTest, RandomPlansForALesserBackendAskForNothingMore) {
  const uint64_t seed = test::PropertySeed();
  SCOPED_TRACE(test::DescribeSeed(seed));
  uint64_t num_merged = 0;
  const int num_cases = test::PropertyCases(300);
  for (int i = 0; i < num_cases; ++i) {
    const test::RandomStep step = test::MakeRandomStep(
        seed + static_cast<uint64_t>(i),
        {.tiles = true, .late_bound = true, .uneven = true, .barriers = true});
    PlanOptions options = Merging(1 << 20);
    options.partition_bytes = i % 2 == 0 ? 64 : 0;
    options.backend.lists = false;
    options.backend.strided = false;
    const auto plan = BuildPlan(step.graph, options, {});
    ASSERT_OK(plan) << "case " << i;
    for (const Launch& launch : (*plan)->launches) {
      EXPECT_NE(launch.way, Way::kGroup) << "case " << i;
      if (launch.members.size() > 1) ++num_merged;
      if (launch.piece.of == 1) continue;
      EXPECT_TRUE(launch.kind == CollectiveKind::kAllReduce ||
                  launch.kind == CollectiveKind::kBroadcast ||
                  launch.kind == CollectiveKind::kReduce)
          << "case " << i;
    }
  }
  EXPECT_GT(num_merged, static_cast<uint64_t>(num_cases) / 10);
}

}  // namespace
}  // namespace commsched

#include "plan/coalesce.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/explain/launch_reason_text.h"
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
using test::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `n` all-reduces of 64 floats in buffers of their own, all ready at once.
class CoalesceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dp_ = builder_.Group("dp", 2);
    for (int i = 0; i < 4; ++i) {
      buffers_.push_back(builder_.Buffer(absl::StrCat("x", i), 64));
    }
    builder_.Compute("make", {Write(buffers_[0]), Write(buffers_[1]),
                              Write(buffers_[2]), Write(buffers_[3])});
  }
  void AllReduce(int i) {
    builder_.AllReduce(absl::StrCat("ar", i), dp_, buffers_[i]);
  }
  GraphBuilder builder_;
  GroupId dp_;
  std::vector<BufferId> buffers_;
};

TEST_F(CoalesceTest, MergesNeighboursUpToTheLimit) {
  for (int i = 0; i < 4; ++i) AllReduce(i);
  const auto plan = MakePlan(builder_.graph(), Merging(3 * 256));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0+ar1+ar2", "ar3"));
  EXPECT_EQ(plan->launches[0].payload_bytes, 3u * 256);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("with 'ar3' it would exceed 768 bytes"));
}

TEST_F(CoalesceTest, ZeroMergesNothing) {
  AllReduce(0);
  AllReduce(1);
  const auto plan = MakePlan(builder_.graph());
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0", "ar1"));
  EXPECT_EQ(plan->launches[0].way, Way::kSingle);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("merging is off"));
}

TEST_F(CoalesceTest, AnotherReductionIsAnotherLaunch) {
  AllReduce(0);
  auto spec = Spec(CollectiveKind::kAllReduce, dp_, Read(buffers_[1]),
                   Write(buffers_[1]));
  spec.reduce_op = ReduceOp::kMax;
  builder_.Collective("max", spec);
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0", "max"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("another reduction"));
}

TEST_F(CoalesceTest, AnotherGroupIsAnotherLaunch) {
  const GroupId tp = builder_.Group("tp", 2);
  AllReduce(0);
  builder_.AllReduce("tp", tp, buffers_[1]);
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0", "tp"));
}

TEST_F(CoalesceTest, NeverPastTheEarliestNeed) {
  AllReduce(0);
  builder_.Compute("needs_ar0", {test::ReadWrite(buffers_[0])});
  builder_.Compute("makes_x1", {Write(buffers_[1])});
  AllReduce(1);
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0", "ar1"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("'needs_ar0' needs it before 'ar1' is ready"));
}

TEST_F(CoalesceTest, NeverWithWhatDependsOnIt) {
  AllReduce(0);
  builder_.AllReduce("again", dp_, buffers_[0]);
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0", "again"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]),
              HasSubstr("'again' depends on it"));
}

TEST_F(CoalesceTest, BarriersStayAlone) {
  CollectiveSpec barrier;
  barrier.kind = CollectiveKind::kBarrier;
  barrier.group = dp_;
  builder_.Collective("b0", barrier);
  builder_.Collective("b1", barrier);
  const auto plan = MakePlan(builder_.graph(), Merging(1 << 20));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("b0", "b1"));
}

// Pieces of one buffer, reduced from the end, as gradients become ready.
Graph FlatStep(uint64_t gap) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId flat = b.Buffer("flat", 1024);
  for (int i = 2; i >= 0; --i) {
    const Region piece = Range(static_cast<uint64_t>(i) * (64 + gap), 64);
    b.Compute(absl::StrCat("bwd", i), {Write(flat, piece)});
    b.AllReduce(absl::StrCat("ar", i), dp, flat, piece);
  }
  return b.graph();
}

TEST(CoalesceWayTest, PiecesOfOneRangeBecomeOneCollectiveInOrderOfAddress) {
  const auto plan = MakePlan(FlatStep(/*gap=*/0), Merging(1 << 20));
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar0+ar1+ar2"));
  EXPECT_EQ(plan->launches[0].way, Way::kInPlace);
}

TEST(CoalesceWayTest, PiecesWithAGapBecomeAListWhereCopiesAreDear) {
  CostProfile profile;
  profile.copy_bytes_per_s = 1e6;
  const auto plan = MakePlan(FlatStep(/*gap=*/1), Merging(1 << 20), profile);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("ar2+ar1+ar0"));
  EXPECT_EQ(plan->launches[0].way, Way::kGroup);
}

TEST(CoalesceWayTest, TinyMembersArePackedWhereCopiesAreCheaperThanAList) {
  CostProfile profile;
  profile.copy_bytes_per_s = 1e12;
  const auto plan = MakePlan(FlatStep(/*gap=*/1), Merging(1 << 20), profile);
  const Launch& launch = plan->launches[0];
  EXPECT_EQ(launch.way, Way::kPack);
  EXPECT_EQ(launch.staging_output, launch.staging_offset + 768);
  EXPECT_EQ(launch.staging_bytes, 2u * 768);
  EXPECT_EQ(plan->arena_bytes, 2u * 768);
  EXPECT_THAT(test::Waits(*plan, "ar0"), ElementsAre("bwd0", "bwd1", "bwd2"));
}

TEST(CoalesceWayTest, UnevenCountsAreNeverPacked) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId x = b.Buffer("x", 8);
  const BufferId y = b.Buffer("y", 8);
  const BufferId small = b.Buffer("small", 16);
  b.Compute("make", {Write(x), Write(y)});
  for (int i = 0; i < 2; ++i) {
    auto spec = Spec(CollectiveKind::kReduceScatter, dp, Read(i == 0 ? x : y),
                     Write(small, Range(i == 0 ? 0 : 8, 5)));
    spec.counts = {3, 5};
    b.Collective(absl::StrCat("rs", i), spec);
  }
  CostProfile profile;
  profile.copy_bytes_per_s = 1e12;
  const auto plan = MakePlan(b.graph(), Merging(1 << 20), profile);
  EXPECT_THAT(LaunchNames(*plan), ElementsAre("rs0+rs1"));
  EXPECT_EQ(plan->launches[0].way, Way::kGroup);
  EXPECT_THAT(ReasonText(*plan, plan->launches[0]), HasSubstr("uneven counts"));
}

}  // namespace
}  // namespace commsched

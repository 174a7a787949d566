#include "plan/host_links.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/coding.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/launch_reason.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::Read;
using test::Write;
using ::testing::HasSubstr;
using ::testing::Not;

using HostNumbers = std::vector<int32_t>;

TEST(HostLinksTest, AHostSendsASumForEachNodeThatItHasAllOf) {
  // 2 of 4 ranks have a part for each of the 2 others, or one sum of both.
  const HostLinks aligned = HostLinksOf(HostNumbers{0, 0, 1, 1});
  EXPECT_EQ(aligned.num_ranks, 4u);
  EXPECT_EQ(aligned.elements, 4u);
  EXPECT_EQ(aligned.summed_bytes_32, 2u * 4);
  EXPECT_EQ(aligned.summed_bytes_16, 2u * 4);
  const HostLinks robin = HostLinksOf(HostNumbers{0, 1, 0, 1});
  EXPECT_EQ(robin.elements, 4u);
  EXPECT_EQ(robin.summed_bytes_32, 4u * 4);
  EXPECT_EQ(robin.summed_bytes_16, 4u * 2);
}

TEST(HostLinksTest, TheBusiestDirectionCounts) {
  // Ranks 0 and 1, and 2, go out; in come 3 parts of rank 3.
  const HostLinks uneven = HostLinksOf(HostNumbers{5, 5, 5, 7});
  EXPECT_EQ(uneven.elements, 3u);
  EXPECT_EQ(uneven.summed_bytes_32, 3u * 4);
  EXPECT_EQ(uneven.summed_bytes_16, 3u * 2);  // 4 + 2 out.
  const HostLinks alone = HostLinksOf(HostNumbers{0, 1, 2, 3});
  EXPECT_EQ(alone.elements, 3u);
  EXPECT_EQ(alone.summed_bytes_32, 3u * 4);
  EXPECT_EQ(HostLinksOf(HostNumbers{1, 1}).elements, 0u);
  EXPECT_EQ(HostLinksOf({}), HostLinks());
}

// A lossy reduce-scatter and all-gather of 8 ranks, 4 MiB of f32 each.
constexpr uint64_t kPart = 1 << 17;

Graph LossyStep(DType dtype = DType::kF32) {
  GraphBuilder b;
  const auto buffer = [&](const char* name, uint64_t count) {
    Buffer one;
    one.name = name;
    one.count = count;
    one.dtype = dtype;
    one.ownership = Ownership::kBound;
    return b.Buffer(one);
  };
  const BufferId gradient = buffer("gradient", 8 * kPart);
  const BufferId sum = buffer("sum", kPart);
  const BufferId all = buffer("all", 8 * kPart);
  const GroupId dp = b.Group("dp", 8);
  b.Compute("backward", {Write(gradient)});
  CollectiveSpec scatter = test::Spec(CollectiveKind::kReduceScatter, dp,
                                      Read(gradient), Write(sum));
  CollectiveSpec gather =
      test::Spec(CollectiveKind::kAllGather, dp, Read(sum), Write(all));
  scatter.lossy = gather.lossy = true;
  b.Collective("rs", scatter);
  b.Collective("ag", gather);
  b.Compute("use", {Read(all)});
  return b.graph();
}

// Of 4 bytes one is left.
PlanOptions Encoding(const HostNumbers& hosts, uint64_t block_bytes = 256) {
  PlanOptions options;
  options.codec = {"small", 256, block_bytes, UINT32_MAX};
  options.backend.host_sums = true;
  options.hosts = HostLinksOf(hosts);
  return options;
}

bool IsEncoded(const Plan& plan, size_t launch) {
  return plan.launches[launch].coded;
}

TEST(LeftUncodedTest, AReduceScatterIsLeftWhereHostsSendNoMoreInSums) {
  // 4 sums of 4 bytes, or 16 parts of 1.
  const auto plan = MakePlan(LossyStep(), Encoding({0, 0, 0, 0, 1, 1, 1, 1}));
  ASSERT_EQ(plan->launches.size(), 2u);
  EXPECT_FALSE(IsEncoded(*plan, 0));
  EXPECT_TRUE(IsEncoded(*plan, 1));
  EXPECT_THAT(
      ReasonText(*plan, plan->launches[0]),
      HasSubstr("not encoded: a host's link carries 2097152 bytes, by 'small' "
                "2097152"));
  EXPECT_THAT(ReasonText(*plan, plan->launches[1]),
              Not(HasSubstr("not encoded")));
}

TEST(LeftUncodedTest, ItIsEncodedWhereThatIsLess) {
  const HostNumbers four = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_TRUE(IsEncoded(*MakePlan(LossyStep(), Encoding(four, 255 & ~7)), 0));
  EXPECT_TRUE(
      IsEncoded(*MakePlan(LossyStep(), Encoding({0, 0, 1, 1, 2, 2, 3, 3})), 0));
  EXPECT_TRUE(
      IsEncoded(*MakePlan(LossyStep(), Encoding({0, 1, 0, 1, 0, 1, 0, 1})), 0));
  EXPECT_TRUE(
      IsEncoded(*MakePlan(LossyStep(), Encoding({0, 0, 0, 0, 0, 0, 0, 0})), 0));
}

TEST(LeftUncodedTest, NarrowTypesAreSummedUpInWideOnes) {
  const HostNumbers four = {0, 0, 0, 0, 1, 1, 1, 1};
  const Graph narrow = LossyStep(DType::kBF16);
  EXPECT_FALSE(IsEncoded(*MakePlan(narrow, Encoding(four)), 0));
  EXPECT_TRUE(IsEncoded(*MakePlan(narrow, Encoding(four, 248)), 0));
}

TEST(LeftUncodedTest, NothingIsLeftWhereHostsOrBackendAreNotKnown) {
  const HostNumbers four = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_TRUE(IsEncoded(*MakePlan(LossyStep(), Encoding({})), 0));
  EXPECT_TRUE(IsEncoded(
      *MakePlan(LossyStep(), Encoding({0, 0, 0, 0, 1, 1, 1, 1, 1})), 0));
  PlanOptions options = Encoding(four);
  options.backend.host_sums = false;
  EXPECT_TRUE(IsEncoded(*MakePlan(LossyStep(), options), 0));
}

TEST(LeftUncodedTest, RanksThatDecideOtherwiseHaveOtherPlans) {
  const Graph graph = LossyStep();
  EXPECT_NE(MakePlan(graph, Encoding({0, 0, 0, 0, 1, 1, 1, 1}))->fingerprint,
            MakePlan(graph, Encoding({}))->fingerprint);
  EXPECT_EQ(MakePlan(graph, Encoding({0, 0, 1, 1, 2, 2, 3, 3}))->fingerprint,
            MakePlan(graph, Encoding({}))->fingerprint);
  // As ranks that are threads and ranks that are processes.
  PlanOptions without = Encoding({});
  without.backend.host_sums = false;
  EXPECT_EQ(MakePlan(graph, without)->fingerprint,
            MakePlan(graph, Encoding({}))->fingerprint);
}

}  // namespace
}  // namespace commsched

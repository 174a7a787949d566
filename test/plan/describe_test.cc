#include "plan/explain/describe.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "plan/predict/cost_model.h"
#include "plan/predict/predict.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using ::testing::HasSubstr;

CostProfile SlowLink() {
  CostProfile profile;
  profile.link_bytes_per_s = 1e8;
  profile.link_latency_ns = 10000;
  return profile;
}

std::shared_ptr<const Plan> PlanOnASlowLink() {
  PlanOptions options;
  options.coalesce_bytes = 40000;
  return test::MakePlan(test::ZeroStep(), options, SlowLink());
}

nlohmann::json MapOf(const Plan& plan) {
  const auto text = DescribeJson({&plan});
  EXPECT_OK(text);
  return nlohmann::json::parse(*text);
}

TEST(DescribeTest, BytesAndTimesOfAnAxisAreThoseOfItsBuckets) {
  const auto plan = PlanOnASlowLink();
  const auto json = MapOf(*plan);
  ASSERT_EQ(json["roles"].size(), 1u);
  const auto& role = json["roles"][0];
  ASSERT_EQ(role["axes"].size(), 1u);
  const auto& axis = role["axes"][0];
  EXPECT_EQ(axis["axis"], "dp");
  EXPECT_EQ(axis["size"], 4);
  EXPECT_EQ(axis["num_collectives"], 8);
  EXPECT_EQ(axis["num_launches"], plan->launches.size());
  EXPECT_EQ(axis["buckets"].size(), plan->launches.size());
  // Four scatters and four gathers of 4096 floats, 3/4 of each on the wire.
  EXPECT_EQ(axis["sent_bytes"], 8 * 4096 * 4 * 3 / 4);
  int64_t sent = 0, link_ns = 0, exposed_ns = 0;
  for (const auto& bucket : axis["buckets"]) {
    sent += bucket["sent_bytes"].get<int64_t>();
    link_ns += bucket["link_ns"].get<int64_t>();
    exposed_ns += bucket["exposed_ns"].get<int64_t>();
  }
  EXPECT_EQ(axis["sent_bytes"], sent);
  EXPECT_EQ(axis["link_ns"], link_ns);
  EXPECT_EQ(axis["exposed_ns"], exposed_ns);
  EXPECT_EQ(role["exposed_ns"], exposed_ns);
  int64_t blamed_ns = 0;
  for (const auto& part : axis["exposed_by"]) blamed_ns += part.get<int64_t>();
  EXPECT_EQ(blamed_ns, exposed_ns);
  EXPECT_GT(exposed_ns, 0);
}

TEST(DescribeTest, TextNamesAxisBucketsAndCause) {
  const auto plan = PlanOnASlowLink();
  const auto text = DescribeText({plan.get()});
  ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr("role 0 of 1"));
  EXPECT_THAT(*text, HasSubstr("axis 'dp', 4 ranks: 8 collectives in"));
  EXPECT_THAT(*text, HasSubstr("98304 bytes sent per step and rank"));
  EXPECT_THAT(*text, HasSubstr("rs.3+rs.2"));
  EXPECT_THAT(*text, HasSubstr("dependency"));
}

TEST(DescribeTest, EveryAxisThatCarriesAnythingIsThere) {
  test::GraphBuilder b;
  const BufferId x = b.Buffer("x", 64);
  const GroupId tp = b.Group("tp", 2);
  const GroupId dp = b.Group("dp", 8);
  b.Group("pp", 2);
  b.AllReduce("sum_tp", tp, x);
  b.AllReduce("sum_dp", dp, x);
  const auto plan = test::MakePlan(b.graph(), {}, SlowLink());
  const auto json = MapOf(*plan);
  ASSERT_EQ(json["roles"][0]["axes"].size(), 2u);
  EXPECT_EQ(json["roles"][0]["axes"][0]["axis"], "tp");
  EXPECT_EQ(json["roles"][0]["axes"][0]["sent_bytes"], 256);
  EXPECT_EQ(json["roles"][0]["axes"][1]["size"], 8);
  EXPECT_EQ(json["roles"][0]["axes"][1]["sent_bytes"], 2 * 256 * 7 / 8);
}

TEST(DescribeTest, PiecesOfACollectiveAreOneCollective) {
  test::GraphBuilder b;
  b.AllReduce("sum", b.Group("dp", 2), b.Buffer("x", 4096));
  PlanOptions options;
  options.partition_bytes = 4096;
  const auto plan = test::MakePlan(b.graph(), options, SlowLink());
  ASSERT_EQ(plan->launches.size(), 4u);
  const auto json = MapOf(*plan);
  const auto& axis = json["roles"][0]["axes"][0];
  EXPECT_EQ(axis["num_collectives"], 1);
  EXPECT_EQ(axis["num_launches"], 4);
  EXPECT_EQ(axis["sent_bytes"], 4096 * 4);
  EXPECT_EQ(axis["buckets"][3]["piece"]["index"], 3);
}

TEST(DescribeTest, RolesOfAnotherJobAreRefused) {
  const auto plan = PlanOnASlowLink();
  EXPECT_THAT(DescribeText({}),
              StatusIs(absl::StatusCode::kInvalidArgument, "there is no plan"));
  EXPECT_THAT(DescribeText({plan.get(), plan.get()}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "plan 0 of 2 is role 0 of 1"));
}

}  // namespace
}  // namespace commsched

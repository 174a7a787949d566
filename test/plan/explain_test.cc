#include "plan/explain/explain.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "plan/explain/launch_reason_text.h"
#include "plan/planner.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::shared_ptr<const Plan> ZeroPlan() {
  PlanOptions options;
  options.max_launches_in_flight = 2;
  options.coalesce_bytes = 40000;
  CostProfile profile;
  profile.link_bytes_per_s = 1e8;
  auto plan = BuildPlan(test::ZeroStep(), options, profile);
  EXPECT_OK(plan);
  return *plan;
}

TEST(ExplainTest, TextHasOneLinePerLaunch) {
  const std::string text = ExplainText(*ZeroPlan());
  EXPECT_THAT(text, HasSubstr("8 collectives in 4 launches"));
  EXPECT_THAT(text, HasSubstr("rs.3+rs.2"));
  EXPECT_THAT(text, HasSubstr("window: launches 2, bytes no limit"));
  EXPECT_THAT(text, HasSubstr("lower bound:"));
}

TEST(ExplainTest, JsonSaysTheSame) {
  const auto plan = ZeroPlan();
  const auto json = nlohmann::json::parse(ExplainJson(*plan));
  ASSERT_EQ(json["launches"].size(), plan->launches.size());
  EXPECT_EQ(json["launches"][0]["members"][1], "rs.2");
  EXPECT_EQ(json["launches"][0]["way"], "group");
  EXPECT_EQ(json["options"]["max_launches_in_flight"], 2);
  EXPECT_EQ(json["ops"].size(), plan->nodes.size());
  EXPECT_GE(json["prediction"]["step_ns"],
            json["prediction"]["lower_bound_ns"]);
}

TEST(ExplainTest, SaysWhatPlaceGroupsAddInBothFormats) {
  test::GraphBuilder b;
  const BufferId one = b.Buffer({.name = "one", .count = 64, .place_group = 6});
  const BufferId two = b.Buffer({.name = "two", .count = 64, .place_group = 6});
  b.Compute("make_one", {test::Write(one)});
  b.Compute("make_two", {test::Write(two)});
  const auto plan = BuildPlan(b.graph(), {}, {});
  ASSERT_OK(plan);
  const std::string text = ExplainText(**plan);
  EXPECT_THAT(text, HasSubstr("place groups: 1; the smallest arena found for "
                              "this order has 256 bytes, 0 more than with "
                              "every buffer placed alone\n"));
  EXPECT_THAT(text, HasSubstr("two (place group 6)"));
  const auto json = nlohmann::json::parse(ExplainJson(**plan));
  EXPECT_EQ(json["place_groups"]["count"], 1);
  EXPECT_EQ(json["place_groups"]["bytes"], 256);
  EXPECT_EQ(json["place_groups"]["more_bytes"], 0);
  EXPECT_EQ(json["arena"][1]["place_group"], 6);
}

TEST(ExplainTest, OfAPlanWithoutPlaceGroupsNothingIsSaidOfThem) {
  EXPECT_THAT(ExplainText(*ZeroPlan()), Not(HasSubstr("place group")));
  EXPECT_FALSE(
      nlohmann::json::parse(ExplainJson(*ZeroPlan())).contains("place_groups"));
}

TEST(ExplainTest, SaysWhatIsExposedAndWhyInBothFormats) {
  const auto plan = ZeroPlan();
  const auto json = nlohmann::json::parse(ExplainJson(*plan));
  const auto& prediction = json["prediction"];
  int64_t blamed_ns = 0;
  for (const auto& part : prediction["exposed_by"]) {
    blamed_ns += part.get<int64_t>();
  }
  EXPECT_GT(blamed_ns, 0);
  EXPECT_EQ(prediction["exposed_ns"], blamed_ns);
  const std::string text = ExplainText(*plan);
  EXPECT_THAT(text, HasSubstr("owed to"));
  EXPECT_THAT(text, HasSubstr("dependency "));
}

// Two lanes on one core: 200 us of compute, of which each lane has half.
TEST(ExplainTest, PriorityPromisesNoMoreThanTheLowerBoundLeaves) {
  test::GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  for (uint32_t lane : {0, 1}) {
    const std::string name(1, static_cast<char>('a' + lane));
    const BufferId gradient = b.Buffer(name, 2000);
    b.Compute("make." + name, {test::Write(gradient)},
              {.lane = lane, .cost_ns = 100'000});
    b.AllReduce("reduce." + name, dp, gradient);
  }
  CostProfile profile;
  profile.link_bytes_per_s = 4e8;
  profile.num_cores = 1;
  ASSERT_OK_AND_ASSIGN(const auto plan, BuildPlan(b.graph(), {}, profile));
  const auto json = nlohmann::json::parse(ExplainJson(*plan));
  const int64_t bound_ns = json["prediction"]["lower_bound_ns"];
  EXPECT_GT(bound_ns, plan->priority.bound_ns);
  EXPECT_EQ(json["order"]["bound_ns"], bound_ns);
  EXPECT_GE(json["order"]["as_ready_ns"], bound_ns);
  EXPECT_THAT(ExplainText(*plan), HasSubstr("; no order is below 200.0 us, so "
                                            "priority could gain at most"));
}

TEST(ExplainTest, SaysWhatMergingByCostHasFound) {
  PlanOptions options;
  options.coalesce_bytes = kCoalesceAuto;
  CostProfile profile;
  profile.link_latency_ns = 50'000;
  ASSERT_OK_AND_ASSIGN(const auto plan,
                       BuildPlan(test::ZeroStep(), options, profile));
  ASSERT_EQ(plan->merging.choice, MergeReport::Choice::kMerged);
  const auto json = nlohmann::json::parse(ExplainJson(*plan));
  EXPECT_EQ(json["options"]["coalesce_bytes"], kCoalesceAuto);
  EXPECT_EQ(json["options"]["coalesce_auto"], true);
  EXPECT_EQ(json["merging"]["choice"], "merged");
  EXPECT_LE(json["merging"]["merged_ns"], json["merging"]["apart_ns"]);
  const std::string text = ExplainText(*plan);
  EXPECT_THAT(text, HasSubstr("; merge by cost; "));
  EXPECT_THAT(text, HasSubstr("merging: by cost: predicted step merged "));
  EXPECT_THAT(text, HasSubstr("; merged: saves "));
}

TEST(ExplainTest, SaysHowTheBackendOfASessionDoesALaunch) {
  const auto plan = ZeroPlan();
  BackendReport report;
  report.backend = "ucx";
  report.launches.resize(plan->launches.size());
  report.launches[1] = {.known = true,
                        .algorithm = "levels",
                        .predicted_ns = 37'100'000,
                        .link_bytes = 33'600'000,
                        .messages = 12,
                        .pieces = 2,
                        .num_hosts = 3};
  const std::string text = ExplainText(*plan, report);
  EXPECT_THAT(text, HasSubstr("backend 'ucx', of each launch alone:\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex("  #1  +levels  +37100.0 us  +[0-9.]+"
                                     " us  +3  +33600000  +2  +12\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("  #0   -")));
  const auto json = nlohmann::json::parse(ExplainJson(*plan, report));
  EXPECT_EQ(json["backend"], "ucx");
  EXPECT_FALSE(json["launches"][0].contains("estimate"));
  const auto& estimate = json["launches"][1]["estimate"];
  EXPECT_EQ(estimate["algorithm"], "levels");
  EXPECT_EQ(estimate["predicted_ns"], 37'100'000);
  EXPECT_EQ(estimate["link_bytes"], 33'600'000);
  EXPECT_EQ(estimate["pieces"], 2);
  EXPECT_EQ(estimate["messages"], 12);
  EXPECT_EQ(estimate["num_hosts"], 3);
  EXPECT_GT(estimate["planned_ns"], 0);
}

TEST(ExplainTest, ABackendThatTellsOfNoLaunchIsLeftOut) {
  const auto plan = ZeroPlan();
  BackendReport report;
  report.backend = "older";
  EXPECT_EQ(ExplainText(*plan, report), ExplainText(*plan));
  report.launches.resize(plan->launches.size());
  EXPECT_EQ(ExplainText(*plan, report), ExplainText(*plan));
}

TEST(ExplainTest, SaysWhyAMergeWasMadeOrRefused) {
  const auto plan = ZeroPlan();
  const auto json = nlohmann::json::parse(ExplainJson(*plan));
  for (size_t k = 0; k < plan->launches.size(); ++k) {
    const std::string reason = ReasonText(*plan, plan->launches[k]);
    EXPECT_FALSE(reason.empty());
    EXPECT_EQ(json["launches"][k]["reason"], reason);
    EXPECT_THAT(ExplainText(*plan), HasSubstr(reason));
  }
}

}  // namespace
}  // namespace commsched

// Plugins that were right for an earlier version, and are refused by name where
// what they promise is no longer what is asked for.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/plugin/registry.h"
#include "comm/plugin/table_support.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "session/backend_model.h"
#include "session/session.h"
#include "test/support/graph_builder.h"
#include "test/support/launches.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

Graph OneSum() {
  test::GraphBuilder builder;
  const BufferId gradient = builder.Buffer("gradient", 1000);
  builder.Compute("backward", {test::Write(gradient)});
  builder.AllReduce("sum", builder.Group("dp", 4), gradient);
  return builder.graph();
}

class RankOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(registry_.Load("rank_order"));
    ASSERT_OK_AND_ASSIGN(backend_, registry_.Backend("rank_order"));
  }

  PluginRegistry registry_{{absl::StrCat(COMMSCHED_TEST_PLUGINS, "/older")}};
  const commsched_backend_t* backend_ = nullptr;
};

TEST_F(RankOrderTest, IsNotPlannedForWhereBitsMustBeThoseOfTheTree) {
  PlanOptions options;
  options.backend = ModelOf(*backend_);
  EXPECT_OK(BuildPlan(OneSum(), options, CostProfile()).status());
  options.deterministic = true;
  EXPECT_THAT(BuildPlan(OneSum(), options, CostProfile()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "collective 'sum': the backend cannot sum in the order "
                       "of the tree (COMMSCHED_BACKEND_TREE_SUMS)"));
}

TEST_F(RankOrderTest, DoesNotRunAPlanThatWantsThem) {
  PlanOptions options;
  options.deterministic = true;
  ASSERT_OK_AND_ASSIGN(const auto plan,
                       BuildPlan(OneSum(), options, CostProfile()));
  EXPECT_THAT(
      CheckBackend(*plan, *backend_),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "the launch of 'sum': backend 'rank_order' cannot sum "
               "in the order of the tree (COMMSCHED_BACKEND_TREE_SUMS)"));
}

TEST_F(RankOrderTest, ExpectsLaunchesThatAreAsLongAsItKnowsThem) {
  std::vector<commsched_launch_t> launches;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    launches.push_back(LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32,
                                COMMSCHED_SUM, 0, 0, 0, nullptr));
    launches.back().slot = slot;
  }
  PluginMessage message;
  EXPECT_EQ(ExpectLaunches(*backend_, nullptr, launches, message.Begin(),
                           PluginMessage::size()),
            COMMSCHED_OK);
}

TEST_F(RankOrderTest, IsExplainedWithoutWhatItDoesNotTell) {
  WorldSpec spec;
  spec.size = 1;
  spec.table = backend_;
  test::GraphBuilder builder;
  const BufferId gradient = builder.Buffer("gradient", 1000);
  builder.Compute("backward", {test::Write(gradient)});
  builder.AllReduce("sum", builder.Group("dp", 1), gradient);
  test::SessionRig rig(spec, builder.graph(), {});
  ASSERT_OK_AND_ASSIGN(const auto session, Session::Create(rig.Spec(0)));
  EXPECT_THAT(session->EstimateOf(0).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "backend 'rank_order' does not tell"));
}

}  // namespace
}  // namespace commsched

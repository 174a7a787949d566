// Two ranks that agree without an engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine.h"
#include "engine/model/model.h"
#include "engine/run/agreement.h"
#include "engine/step_plan/options.h"
#include "engine/step_plan/spec.h"
#include "engine/tables/optimizer_table.h"
#include "test/engine/messages.h"
#include "test/step_plan/parameter_desc.h"
#include "test/support/rank_group.h"

namespace commsched::engine {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// What `body` returns on each of two ranks that have kept their context.
std::vector<std::string> AgreedByTwo(
    const std::function<Status(Agreement&, int)>& body) {
  commsched_world_desc_t world_desc = commsched_world_desc_init();
  world_desc.size = 2;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&world_desc, &world));
  std::vector<std::string> messages(2);
  RunRanks(2, [&](int rank) {
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.launch_timeout_ns = int64_t{60} * 1'000'000'000;
    Require(commsched_context_create(world, rank, &desc.context));
    const int32_t ranks[] = {0, 1};
    Require(commsched_group_create(desc.context, "dp", ranks, 2, &desc.group));
    {
      Agreement agreement(&desc);
      EXPECT_TRUE(agreement.KeepContext().ok());
      messages[static_cast<size_t>(rank)] = body(agreement, rank).message();
    }
    commsched_group_destroy(desc.group);
    commsched_context_destroy(desc.context);
    return absl::OkStatus();
  });
  commsched_world_destroy(world);
  return messages;
}

TEST(AgreementTest, ASettingThatOnlyTheOptimizersTableKnowsIsCompared) {
  const auto register_with = [](Agreement& agreement, float tilt) {
    commsched_optimizer_table_t table = commsched_optimizer_table_init();
    table.name = "lion";
    table.settings[0] = {"tilt", tilt};
    return agreement.OnCreation(
        StepOptions(commsched_step_plan_options_init(), /*num_ranks=*/2),
        Optimizer(&table), Model());
  };
  EXPECT_THAT(AgreedByTwo([&](Agreement& agreement, int rank) {
                return register_with(agreement, rank == 0 ? 0.25f : 0.5f);
              }),
              Each(HasSubstr("tilt is 0.25 on rank 0 and 0.5 on rank 1")));
  EXPECT_THAT(AgreedByTwo([&](Agreement& agreement, int) {
                return register_with(agreement, 0.25f);
              }),
              Each(""));
}

TEST(AgreementTest, ARankThatIsNotReadyForEvaluationsFailsTheOther) {
  EXPECT_THAT(AgreedByTwo([](Agreement& agreement, int rank) {
                return agreement.OnEvaluation(
                    rank == 1 ? FailedPrecondition("no room") : Status());
              }),
              Each(HasSubstr("no room")));
}

TEST(AgreementTest, ValuesMayDifferOnceTheyHaveChanged) {
  StepSpec spec;
  uint32_t id = 0;
  Model model;
  ASSERT_TRUE(model.AddModule("m", 1, 1, &id).ok());
  ASSERT_TRUE(model.AddParameter(ParameterDesc(0, "w", {8}), &id).ok());
  Layout layout;
  ASSERT_TRUE(StepPlan::LayOut(spec, model, {}, &layout).ok());
  std::unique_ptr<const StepPlan> plan;
  ASSERT_TRUE(StepPlan::Build(spec, model, {}, layout, {0}, &plan).ok());
  const commsched_engine_desc_t desc = commsched_engine_desc_init();
  Agreement agreement(&desc);
  EXPECT_TRUE(agreement.values_may_differ());
  // One rank alone has nobody to compare with.
  ASSERT_TRUE(agreement.OnValues({.plan = plan.get()}, nullptr).ok());
  EXPECT_FALSE(agreement.values_may_differ());
  agreement.NoteChangedValues();
  EXPECT_TRUE(agreement.values_may_differ());
}

}  // namespace
}  // namespace commsched::engine

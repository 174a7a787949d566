#include "engine/step_plan/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "test/step_plan/parameter_desc.h"

namespace commsched::engine {
namespace {

using testing::HasSubstr;

constexpr uint32_t kModules = 4;
constexpr uint64_t kElements = 4096;  // Of each module.

// Modules "m0", "m1", ... with a parameter each, which is a bucket of its own.
class StepPlanTest : public testing::Test {
 protected:
  StepPlanTest() {
    for (uint32_t m = 0; m < kModules; ++m) {
      const std::string name = "m" + std::to_string(m);
      uint32_t module = 0;
      uint32_t parameter = 0;
      EXPECT_TRUE(model_.AddModule(name.c_str(), 1e6, 2e6, &module).ok());
      EXPECT_TRUE(model_
                      .AddParameter(ParameterDesc(module, (name + ".w").c_str(),
                                                  {kElements}),
                                    &parameter)
                      .ok());
    }
  }

  static StepSpec Spec(uint32_t zero_stage, int32_t world = 4) {
    StepSpec spec;
    spec.zero_stage = zero_stage;
    spec.world = world;
    return spec;
  }

  StepPlan::Options OptionsOf(const StepSpec& spec) const {
    StepPlan::Options options;
    options.layout.bucket_bytes = kElements * sizeof(float);
    options.layout.num_shards = static_cast<uint64_t>(spec.world);
    return options;
  }

  Status Build(const StepSpec& spec, const StepPlan::Options& options) {
    Layout layout;
    const Status laid_out = StepPlan::LayOut(spec, model_, options, &layout);
    if (!laid_out.ok()) return laid_out;
    return StepPlan::Build(spec, model_, options, layout,
                           RegisteredSequence(kModules), &plan_);
  }

  std::string Fingerprint() const {
    commsched_plan_info_t info = commsched_plan_info_init();
    EXPECT_EQ(commsched_plan_get_info(plan_->plan(), &info), COMMSCHED_OK);
    return std::string(reinterpret_cast<const char*>(info.fingerprint),
                       sizeof(info.fingerprint));
  }

  Model model_;
  std::unique_ptr<const StepPlan> plan_;
};

TEST_F(StepPlanTest, AStepIsPlannedWithoutRanks) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    for (int32_t world : {1, 2, 4}) {
      const StepSpec spec = Spec(stage, world);
      const Status built = Build(spec, OptionsOf(spec));
      ASSERT_TRUE(built.ok()) << built.message();
      EXPECT_EQ(plan_->layout().buckets.size(), kModules);
      EXPECT_EQ(plan_->graph().passes.size(), 2 * kModules);
      EXPECT_EQ(plan_->graph().pass_ops.size(), 2 * kModules);
      EXPECT_EQ(plan_->num_ops(),
                commsched_graph_num_ops(plan_->graph().graph.get()));
      EXPECT_EQ(plan_->arena_bytes() > 0, stage >= 2);
    }
  }
}

TEST_F(StepPlanTest, ItIsAFunctionOfWhatItIsGiven) {
  const StepSpec spec = Spec(3);
  ASSERT_TRUE(Build(spec, OptionsOf(spec)).ok());
  const std::string first = Fingerprint();
  ASSERT_TRUE(Build(spec, OptionsOf(spec)).ok());
  EXPECT_EQ(Fingerprint(), first);
  StepPlan::Options other = OptionsOf(spec);
  other.layout.bucket_bytes *= 2;
  ASSERT_TRUE(Build(spec, other).ok());
  EXPECT_NE(Fingerprint(), first);
}

// Of four gradient buckets two are alive at once.
TEST_F(StepPlanTest, GradientsShareHalfOfTheirMemory) {
  const StepSpec spec = Spec(2);
  ASSERT_TRUE(Build(spec, OptionsOf(spec)).ok());
  EXPECT_EQ(plan_->arena_bytes(), kModules / 2 * kElements * sizeof(float));
}

TEST_F(StepPlanTest, ALimitBelowWhatAPassNeedsIsNamed) {
  const StepSpec spec = Spec(3);
  StepPlan::Options options = OptionsOf(spec);
  options.max_live_bytes = kElements * sizeof(float);
  const Status refused = Build(spec, options);
  EXPECT_EQ(refused.code(), COMMSCHED_RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message(),
              HasSubstr("max_live_bytes 16384 is too small: backward of module "
                        "'m3' needs 32768: 16384 of gathered parameter buckets "
                        "and 16384 of gradient buckets"));
  options.max_live_bytes *= 3;
  const Status built = Build(spec, options);
  ASSERT_TRUE(built.ok()) << built.message();
  EXPECT_LE(plan_->arena_bytes(), options.max_live_bytes);
}

// The first micro-batch is reduced into the slots. The second is added to sums
// there some passes later, which are fetched where another bucket came between.
TEST_F(StepPlanTest, OffloadedSumsTakeTurnsInTheirSlots) {
  StepSpec spec = Spec(2);
  spec.micro_batches = 2;
  spec.offloads_gradients = true;
  StepPlan::Options options = OptionsOf(spec);
  options.accumulate_bytes = 1;
  for (const uint32_t slots : {2u, kModules}) {
    options.gradient_staging_bytes = slots * kElements / 4 * sizeof(float);
    const Status built = Build(spec, options);
    ASSERT_TRUE(built.ok()) << built.message();
    ASSERT_EQ(plan_->layout().gradient_slots, slots);
    const std::vector<GradientTurn>& turns = plan_->graph().gradient_turns;
    ASSERT_EQ(turns.size(), 2 * kModules);
    for (uint32_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i].bucket, kModules - 1 - i % kModules);
      EXPECT_EQ(turns[i].micro_batch, i / kModules);
      EXPECT_EQ(turns[i].adds, i >= kModules);
      EXPECT_FALSE(turns[i].first);
      EXPECT_EQ(turns[i].num_passes,
                i < kModules ? kModules + i + 1 : uint64_t{4} * kModules);
      EXPECT_EQ(turns[i].fetch != kNoId, i >= kModules && slots == 2);
      EXPECT_NE(turns[i].store, kNoId);
    }
  }
}

TEST_F(StepPlanTest, MorePassesThanCanBePlannedAreRefused) {
  StepSpec spec = Spec(1);
  spec.micro_batches = 1 << 20;
  const Status refused = Build(spec, OptionsOf(spec));
  EXPECT_EQ(refused.code(), COMMSCHED_OUT_OF_RANGE);
  EXPECT_THAT(refused.message(), HasSubstr("micro_batches is 1048576"));
}

TEST_F(StepPlanTest, OffloadedStateHasSlotsForTheLargestBucket) {
  StepSpec spec = Spec(1);
  spec.offloads = true;
  StepPlan::Options options = OptionsOf(spec);
  ASSERT_TRUE(Build(spec, options).ok());
  EXPECT_EQ(plan_->layout().staging_slots, 2u);
  EXPECT_EQ(plan_->layout().staging_count, 2 * kElements / 4);
  options.offload_staging_bytes = 100;
  const Status refused = Build(spec, options);
  EXPECT_EQ(refused.code(), COMMSCHED_RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message(), HasSubstr("offload_staging_bytes is 100"));
}

// Each bucket is gathered to where a stay of the step has it, and none beyond
// what the step has.
TEST_F(StepPlanTest, AnEvaluationUsesTheArenaOfTheStep) {
  for (const int32_t world : {1, 2, 4}) {
    const StepSpec spec = Spec(/*zero_stage=*/3, world);
    ASSERT_TRUE(Build(spec, OptionsOf(spec)).ok());
    const ForwardGraph& forward = plan_->forward();
    ASSERT_NE(plan_->forward_plan(), nullptr);
    EXPECT_EQ(forward.passes.size(), kModules);
    EXPECT_EQ(forward.shards.size(), kModules);
    ASSERT_NE(forward.gathered, kNoId);
    EXPECT_GE(forward.arena_bytes, kElements * sizeof(float));
    EXPECT_LE(forward.arena_offset + forward.arena_bytes, plan_->arena_bytes());
    commsched_plan_info_t info = commsched_plan_info_init();
    ASSERT_EQ(commsched_plan_get_info(plan_->forward_plan(), &info),
              COMMSCHED_OK);
    EXPECT_EQ(info.num_collectives, kModules);
    EXPECT_EQ(info.arena_bytes, 0u);
  }
}

TEST_F(StepPlanTest, AnEvaluationWithoutGathersHasNoPlan) {
  for (uint32_t stage = 0; stage <= 2; ++stage) {
    const StepSpec spec = Spec(stage);
    ASSERT_TRUE(Build(spec, OptionsOf(spec)).ok());
    EXPECT_EQ(plan_->forward_plan(), nullptr);
    EXPECT_EQ(plan_->forward().passes.size(), kModules);
    EXPECT_EQ(plan_->forward().gathered, kNoId);
  }
}

TEST_F(StepPlanTest, AnotherOrderOfModulesIsAnotherPlan) {
  const StepSpec spec = Spec(3);
  ASSERT_TRUE(Build(spec, OptionsOf(spec)).ok());
  const std::string registered = Fingerprint();
  const Layout layout = plan_->layout();
  ASSERT_TRUE(StepPlan::Build(spec, model_, OptionsOf(spec), layout,
                              {0, 2, 1, 3, 0}, &plan_)
                  .ok());
  EXPECT_EQ(plan_->graph().passes.size(), 10u);
  EXPECT_NE(Fingerprint(), registered);
}

}  // namespace
}  // namespace commsched::engine

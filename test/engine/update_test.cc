#include "engine/update/update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/state/memory.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {
namespace {

using testing::HasSubstr;

constexpr uint64_t kCount = 512;

// Runs ops without a session: `before` stands in for what other ranks send.
class LonelyOps final : public StepOps {
 public:
  Status Before(commsched_op_id_t op) override {
    if (before) before(op);
    ran.push_back(op);
    return Status();
  }
  Status After(commsched_op_id_t) override { return Status(); }
  void Measure(commsched_op_id_t) override {}
  int64_t* CostOf(commsched_op_id_t) override { return nullptr; }
  void Abort(const char* reason) override { aborts.push_back(reason); }

  std::function<void(commsched_op_id_t)> before;
  std::vector<commsched_op_id_t> ran;
  std::vector<std::string> aborts;
};

// Rank 0 of a group, with a model of one parameter, 'w', and plain SGD.
class UpdateRig {
 public:
  explicit UpdateRig(StepSpec spec, float clip_norm = 0)
      : model_(spec.world),
        state(&memory_, &kernels_, /*rank=*/0, /*on_device=*/false),
        update({.optimizer = &optimizer_,
                .clip_norm = clip_norm,
                .loss_scale_window = 2000,
                .max_skipped_steps = 2,
                .kernels = &kernels_,
                .model = &model_,
                .state = &state,
                .ops = &ops}) {
    spec.moments = 0;
    spec.optimizer = "sgd";
    uint32_t id = 0;
    const uint64_t dims[] = {kCount};
    EXPECT_TRUE(model_.AddModule("m", 1, 1, &id).ok());
    EXPECT_TRUE(model_.AddParameter(0, "w", dims, 1, &id).ok());
    StepPlan::Options options;
    options.layout.bucket_bytes = kCount * sizeof(float);
    options.layout.num_shards = static_cast<uint64_t>(spec.world);
    Layout layout;
    EXPECT_TRUE(StepPlan::LayOut(spec, model_, options, &layout).ok());
    const Status built =
        StepPlan::Build(spec, model_, options, layout, {0}, &plan);
    EXPECT_TRUE(built.ok()) << built.message();
    EXPECT_TRUE(state.Allocate(*plan, model_.parameters()).ok());
    state.Bind(*plan);
    EXPECT_TRUE(update.Prepare(*plan).ok());
  }

  const StepGraph& graph() const { return plan->graph(); }
  const Model& model() const { return model_; }
  float* weights() { return state.bucket(0).my_masters; }
  // Its reduced gradients.
  void FillGradients(float value) {
    auto* const gradients = const_cast<float*>(
        reinterpret_cast<const float*>(state.bucket(0).my_gradients));
    std::fill_n(gradients, plan->ShardCount(0), value);
  }

 private:
  const Kernels kernels_{commsched_engine_kernels_init(), CpuKernels(),
                         commsched_stream_caller()};
  const Memory memory_{commsched_engine_memory_init(), CpuMemory()};
  Model model_;
  const commsched_optimizer_table_t optimizer_ = commsched_sgd(0, 0);

 public:
  std::unique_ptr<const StepPlan> plan;
  RankState state;
  LonelyOps ops;
  Update update;
};

StepSpec CheckedSpec() {
  StepSpec spec;
  spec.check_finite = true;
  return spec;
}

// Two ranks whose sums, and rates, are gathered before anything is stepped.
StepSpec GatheringSpec() {
  StepSpec spec;
  spec.zero_stage = 1;
  spec.world = 2;
  spec.clip = true;
  spec.deterministic = true;
  return spec;
}

// What the gather leaves: this rank's sums and rate, and those of rank 1, which
// are the same but for its rate.
void GatherWithRate(UpdateRig* rig, double rate_of_rank_1) {
  NormMemory& norm = rig->state.norm();
  const uint64_t count = norm.local_sums.count();
  std::copy_n(norm.local_sums.data(), count, norm.all_sums.data());
  std::copy_n(norm.local_sums.data(), count, norm.all_sums.data() + count);
  norm.all_sums.data()[count + rig->graph().local_blocks] = rate_of_rank_1;
}

TEST(UpdateTest, StepsWhatItWasGiven) {
  UpdateRig rig((StepSpec()));
  rig.FillGradients(2);
  ASSERT_TRUE(rig.update.Step(1, 0.25f).ok());
  EXPECT_EQ(rig.weights()[0], -0.5f);
  EXPECT_EQ(rig.weights()[kCount - 1], -0.5f);
  EXPECT_FALSE(rig.update.has_norm());
}

TEST(UpdateTest, TheNormOfAStepIsReportedAndClips) {
  StepSpec spec;
  spec.clip = true;
  UpdateRig rig(spec, /*clip_norm=*/1);
  rig.FillGradients(2);
  ASSERT_TRUE(rig.update.Step(1, 1).ok());
  const double norm = std::sqrt(4.0 * kCount);
  EXPECT_TRUE(rig.update.has_norm());
  EXPECT_NEAR(rig.update.reported().norm, norm, 1e-9);
  EXPECT_NEAR(rig.weights()[0], -2 / norm, 1e-6);
}

TEST(UpdateTest, AStepThatIsNotFiniteIsSkippedAndReported) {
  UpdateRig rig(CheckedSpec());
  rig.FillGradients(std::numeric_limits<float>::infinity());
  ASSERT_TRUE(rig.update.Step(1, 1).ok());
  EXPECT_EQ(rig.weights()[0], 0.0f);
  EXPECT_EQ(rig.update.reported().skipped_in_row, 1);
}

TEST(UpdateTest, TooManySkippedStepsEndTraining) {
  UpdateRig rig(CheckedSpec());
  rig.FillGradients(std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(rig.update.Step(7, 1).ok());
  ASSERT_TRUE(rig.update.verdict().ok());
  const Status ended = rig.update.Step(8, 1);
  EXPECT_EQ(ended.code(), COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(ended.message(),
              HasSubstr("2 steps in a row, up to step 8, were not finite, and "
                        "max_skipped_steps is 2; in the last one that of "
                        "parameter 'w' was not. The weights are those of step "
                        "6"));
  EXPECT_EQ(rig.update.verdict().message(), ended.message());
  EXPECT_THAT(rig.ops.aborts, testing::ElementsAre(ended.message()));
}

TEST(UpdateTest, LearningRatesThatDifferEndTrainingBeforeAWeightIsStepped) {
  UpdateRig rig(GatheringSpec(), /*clip_norm=*/1e6f);
  rig.FillGradients(2);
  rig.ops.before = [&](commsched_op_id_t op) {
    if (op == rig.graph().norm) GatherWithRate(&rig, 0.5);
  };
  const Status ended = rig.update.Step(3, 0.25f);
  EXPECT_EQ(ended.code(), COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(ended.message(),
              HasSubstr("lr of step 3 is 0.25 on rank 0 of the group and 0.5 "
                        "on rank 1"));
  EXPECT_THAT(ended.message(), HasSubstr("No weight was stepped with it"));
  EXPECT_EQ(rig.weights()[0], 0.0f);
  EXPECT_EQ(rig.ops.ran.back(), rig.graph().norm);
  EXPECT_EQ(rig.ops.aborts.size(), 1u);
}

TEST(UpdateTest, TheSameLearningRatesStep) {
  UpdateRig rig(GatheringSpec(), /*clip_norm=*/1e6f);
  rig.FillGradients(2);
  rig.ops.before = [&](commsched_op_id_t op) {
    if (op == rig.graph().norm) GatherWithRate(&rig, 0.25);
  };
  ASSERT_TRUE(rig.update.Step(3, 0.25f).ok());
  EXPECT_EQ(rig.weights()[0], -0.5f);
  EXPECT_TRUE(rig.ops.aborts.empty());
}

// A collective of their own: the step after sees what they were.
TEST(UpdateTest, LearningRatesWithoutANormAreComparedByTheNextStep) {
  StepSpec spec;
  spec.world = 2;
  UpdateRig rig(spec);
  ASSERT_TRUE(rig.update.Step(1, 0.25f).ok());
  rig.state.norm().rates.data()[1] = 0.5;
  const Status ended = rig.update.Step(2, 0.25f);
  EXPECT_THAT(ended.message(), HasSubstr("lr of step 1 is 0.25 on rank 0"));
  EXPECT_THAT(ended.message(), HasSubstr("The weights have been stepped"));
}

// What a table of the caller's is given, and what comes of its failure.
TEST(UpdateTest, AFailureOfATablesStepNamesIt) {
  UpdateRig rig((StepSpec()));
  commsched_optimizer_table_t table = commsched_sgd(0, 0);
  table.name = "lion";
  table.step = [](const commsched_optimizer_table_t*, commsched_stream_t,
                  const commsched_optimizer_bucket_t* bucket) {
    EXPECT_EQ(bucket->num_segments, 1u);
    EXPECT_EQ(bucket->segments[0].count, kCount);
    EXPECT_EQ(bucket->segments[0].dims[0], kCount);
    EXPECT_EQ(bucket->segments[0].lr, 0.25f);
    commsched_set_last_error("no teeth");
    return commsched_status_t{COMMSCHED_INTERNAL};
  };
  const Kernels kernels(commsched_engine_kernels_init(), CpuKernels(),
                        commsched_stream_caller());
  Update update({.optimizer = &table,
                 .max_skipped_steps = 2,
                 .kernels = &kernels,
                 .model = &rig.model(),
                 .state = &rig.state,
                 .ops = &rig.ops});
  ASSERT_TRUE(update.Prepare(*rig.plan).ok());
  const Status failed = update.Step(1, 0.25f);
  EXPECT_EQ(failed.code(), COMMSCHED_INTERNAL);
  EXPECT_EQ(failed.message(), "optimizer 'lion': no teeth");
}

}  // namespace
}  // namespace commsched::engine

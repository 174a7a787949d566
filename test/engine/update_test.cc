#include "engine/update/update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
#include "test/engine/update_call.h"
#include "test/step_plan/parameter_desc.h"

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
  explicit UpdateRig(StepSpec spec, float clip_norm = 0,
                     uint32_t option_set = 0)
      : state(&memory_, &kernels_, /*rank=*/0, /*on_device=*/false),
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
    EXPECT_TRUE(model_.AddModule("m", 1, 1, &id).ok());
    const std::vector<uint64_t> dims = {kCount};
    commsched_parameter_desc_t desc = ParameterDesc(0, "w", dims);
    desc.option_set = option_set;
    EXPECT_TRUE(model_.AddParameter(desc, &id).ok());
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
    prepared = update.Prepare(*plan);
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
  Status prepared;
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
void GatherWithRate(UpdateRig* rig, float rate_of_rank_1,
                    float clip_of_rank_1 = 0) {
  NormMemory& norm = rig->state.norm();
  const uint64_t count = norm.local_sums.count();
  std::copy_n(norm.local_sums.data(), count, norm.all_sums.data());
  std::copy_n(norm.local_sums.data(), count, norm.all_sums.data() + count);
  norm.all_sums.data()[count + rig->graph().local_blocks] =
      PairOf(rate_of_rank_1, clip_of_rank_1);
}

TEST(UpdateTest, StepsWhatItWasGiven) {
  UpdateRig rig((StepSpec()));
  rig.FillGradients(2);
  ASSERT_TRUE(rig.update.Step(1, UpdateArgs(0.25f)).ok());
  EXPECT_EQ(rig.weights()[0], -0.5f);
  EXPECT_EQ(rig.weights()[kCount - 1], -0.5f);
  EXPECT_FALSE(rig.update.has_norm());
}

TEST(UpdateTest, TheNormCanBeReadBeforeTheUpdate) {
  StepSpec spec;
  spec.reads_norm = true;
  UpdateRig rig(spec);
  rig.FillGradients(2);
  double norm = 0;
  ASSERT_TRUE(rig.update.ReadNorm(&norm).ok());
  EXPECT_NEAR(norm, std::sqrt(4.0 * kCount), 1e-9);
  EXPECT_EQ(rig.weights()[0], 0.0f);
  EXPECT_FALSE(rig.update.has_norm());
  ASSERT_TRUE(rig.update.ReadNorm(&norm).ok());
  ASSERT_TRUE(rig.update.Step(1, UpdateArgs(0.25f)).ok());
  EXPECT_EQ(rig.weights()[0], -0.5f);
  EXPECT_EQ(rig.update.reported().norm, norm);
  // Read or not, each op ran once.
  std::vector<commsched_op_id_t> ran = rig.ops.ran;
  std::sort(ran.begin(), ran.end());
  EXPECT_EQ(std::unique(ran.begin(), ran.end()), ran.end());
}

// A norm of some step decides nothing for the next.
TEST(UpdateTest, ANormThatIsReadChangesNoVerdict) {
  UpdateRig rig(CheckedSpec());
  rig.FillGradients(std::numeric_limits<float>::infinity());
  double norm = 0;
  ASSERT_TRUE(rig.update.ReadNorm(&norm).ok());
  EXPECT_FALSE(std::isfinite(norm));
  ASSERT_TRUE(rig.update.ReadNorm(&norm).ok());
  ASSERT_TRUE(rig.update.Step(1, UpdateArgs(1)).ok());
  EXPECT_EQ(rig.update.reported().skipped_in_row, 1);
}

TEST(UpdateTest, AStepHasAClipNormOfItsOwn) {
  StepSpec spec;
  spec.clip = true;
  UpdateRig rig(spec, /*clip_norm=*/1e6f);
  rig.FillGradients(2);
  commsched_engine_update_args_t args = UpdateArgs(1);
  args.clip_norm = 1;
  ASSERT_TRUE(rig.update.CheckArgs(args).ok());
  ASSERT_TRUE(rig.update.Step(1, args).ok());
  EXPECT_NEAR(rig.weights()[0], -2 / std::sqrt(4.0 * kCount), 1e-6);
}

TEST(UpdateTest, ArgumentsThatNoStepCanHaveAreRefusedByName) {
  StepSpec spec;
  spec.option_sets = 1;
  UpdateRig rig(spec);
  const auto refusal = [&](const commsched_engine_update_args_t& args) {
    const Status refused = rig.update.CheckArgs(args);
    EXPECT_EQ(refused.code(), COMMSCHED_INVALID_ARGUMENT);
    return refused.message();
  };
  EXPECT_THAT(refusal(UpdateArgs(-1)), HasSubstr("lr is -1"));
  commsched_engine_update_args_t args = UpdateArgs(1);
  args.clip_norm = 1;
  EXPECT_THAT(refusal(args), HasSubstr("but no norm is computed"));
  args = UpdateArgs(1);
  args.num_sets = 2;
  EXPECT_THAT(refusal(args), HasSubstr("values of 2 option sets; option_sets "
                                       "of the engine is 1"));
  args.num_sets = 1;
  EXPECT_THAT(refusal(args), HasSubstr("sets of update are NULL"));
  commsched_option_values_t set = commsched_option_values_init();
  args.sets = &set;
  EXPECT_TRUE(rig.update.CheckArgs(args).ok());
  set.beta2 = 1;
  EXPECT_THAT(refusal(args), HasSubstr("beta2 of option set 0 is 1.000000; it "
                                       "must be in [0, 1)"));
  set.beta2 = 0;
  set.decay = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(args), HasSubstr("decay of option set 0 is inf"));
}

TEST(UpdateTest, AParameterOfAnOptionSetThatThereIsNotIsRefused) {
  StepSpec spec;
  spec.option_sets = 2;
  const UpdateRig rig(spec, /*clip_norm=*/0, /*option_set=*/2);
  EXPECT_EQ(rig.prepared.message(),
            "engine: parameter 'w' is of option set 2; option_sets of the "
            "engine is 2");
}

TEST(UpdateTest, AnOptionSetHasItsOwnRateAndDecay) {
  StepSpec spec;
  spec.option_sets = 2;
  UpdateRig rig(spec, /*clip_norm=*/0, /*option_set=*/1);
  ASSERT_TRUE(rig.prepared.ok()) << rig.prepared.message();
  std::fill_n(rig.weights(), kCount, 1.0f);
  rig.FillGradients(2);
  commsched_option_values_t sets[2] = {commsched_option_values_init(),
                                       commsched_option_values_init()};
  sets[1].lr_scale = 0.5f;
  sets[1].decay = 4;
  commsched_engine_update_args_t args = UpdateArgs(0.25f);
  args.sets = sets;
  args.num_sets = 2;
  ASSERT_TRUE(rig.update.Step(1, args).ok());
  EXPECT_EQ(rig.weights()[0], 1 - 0.125f * (2 + 4 * 1.0f));
}

TEST(UpdateTest, TheNormOfAStepIsReportedAndClips) {
  StepSpec spec;
  spec.clip = true;
  UpdateRig rig(spec, /*clip_norm=*/1);
  rig.FillGradients(2);
  ASSERT_TRUE(rig.update.Step(1, UpdateArgs(1)).ok());
  const double norm = std::sqrt(4.0 * kCount);
  EXPECT_TRUE(rig.update.has_norm());
  EXPECT_NEAR(rig.update.reported().norm, norm, 1e-9);
  EXPECT_NEAR(rig.weights()[0], -2 / norm, 1e-6);
}

TEST(UpdateTest, AStepThatIsNotFiniteIsSkippedAndReported) {
  UpdateRig rig(CheckedSpec());
  rig.FillGradients(std::numeric_limits<float>::infinity());
  ASSERT_TRUE(rig.update.Step(1, UpdateArgs(1)).ok());
  EXPECT_EQ(rig.weights()[0], 0.0f);
  EXPECT_EQ(rig.update.reported().skipped_in_row, 1);
}

TEST(UpdateTest, TooManySkippedStepsEndTraining) {
  UpdateRig rig(CheckedSpec());
  rig.FillGradients(std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(rig.update.Step(7, UpdateArgs(1)).ok());
  ASSERT_TRUE(rig.update.verdict().ok());
  const Status ended = rig.update.Step(8, UpdateArgs(1));
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
    if (op == rig.graph().norm) GatherWithRate(&rig, 0.5f);
  };
  const Status ended = rig.update.Step(3, UpdateArgs(0.25f));
  EXPECT_EQ(ended.code(), COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(ended.message(),
              HasSubstr("lr of step 3 is 0.25 on rank 0 of the group and 0.5 "
                        "on rank 1"));
  EXPECT_THAT(ended.message(), HasSubstr("No weight was stepped with it"));
  EXPECT_EQ(rig.weights()[0], 0.0f);
  EXPECT_EQ(rig.ops.ran.back(), rig.graph().norm);
  EXPECT_EQ(rig.ops.aborts.size(), 1u);
}

TEST(UpdateTest, AnotherClipNormOnAnotherRankIsNamed) {
  UpdateRig rig(GatheringSpec(), /*clip_norm=*/1e6f);
  rig.FillGradients(2);
  rig.ops.before = [&](commsched_op_id_t op) {
    if (op == rig.graph().norm) GatherWithRate(&rig, 0.25f, 2);
  };
  commsched_engine_update_args_t args = UpdateArgs(0.25f);
  args.clip_norm = 3;
  EXPECT_THAT(rig.update.Step(3, args).message(),
              HasSubstr("clip_norm of step 3 is 3 on rank 0 of the group and 2 "
                        "on rank 1"));
}

// They travel with the next norm then.
TEST(UpdateTest, LearningRatesOfAStepWhoseNormWasReadAreComparedByTheNext) {
  UpdateRig rig(GatheringSpec(), /*clip_norm=*/1e6f);
  rig.FillGradients(2);
  float rate_of_rank_1 = 0;
  rig.ops.before = [&](commsched_op_id_t op) {
    if (op != rig.graph().norm) return;
    GatherWithRate(&rig, rate_of_rank_1);
    if (rate_of_rank_1 > 0) return;
    // Before the first step there is nothing to send.
    NormMemory& norm = rig.state.norm();
    EXPECT_EQ(norm.local_sums.data()[rig.graph().local_blocks], 0);
    norm.all_sums.data()[2 * norm.local_sums.count() - 1] = 0;
  };
  double norm = 0;
  ASSERT_TRUE(rig.update.ReadNorm(&norm).ok());
  ASSERT_TRUE(rig.update.Step(3, UpdateArgs(0.25f)).ok());
  rate_of_rank_1 = 0.5f;
  ASSERT_TRUE(rig.update.ReadNorm(&norm).ok());
  const Status ended = rig.update.Step(4, UpdateArgs(0.25f));
  EXPECT_THAT(ended.message(), HasSubstr("lr of step 3 is 0.25 on rank 0"));
  EXPECT_THAT(ended.message(), HasSubstr("The weights have been stepped"));
}

TEST(UpdateTest, TheSameLearningRatesStep) {
  UpdateRig rig(GatheringSpec(), /*clip_norm=*/1e6f);
  rig.FillGradients(2);
  rig.ops.before = [&](commsched_op_id_t op) {
    if (op == rig.graph().norm) GatherWithRate(&rig, 0.25f);
  };
  ASSERT_TRUE(rig.update.Step(3, UpdateArgs(0.25f)).ok());
  EXPECT_EQ(rig.weights()[0], -0.5f);
  EXPECT_TRUE(rig.ops.aborts.empty());
}

// A collective of their own: the step after sees what they were.
TEST(UpdateTest, LearningRatesWithoutANormAreComparedByTheNextStep) {
  StepSpec spec;
  spec.world = 2;
  UpdateRig rig(spec);
  ASSERT_TRUE(rig.update.Step(1, UpdateArgs(0.25f)).ok());
  rig.state.norm().rates.data()[1] = PairOf(0.5f, 0);
  const Status ended = rig.update.Step(2, UpdateArgs(0.25f));
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
  const Status failed = update.Step(1, UpdateArgs(0.25f));
  EXPECT_EQ(failed.code(), COMMSCHED_INTERNAL);
  EXPECT_EQ(failed.message(), "optimizer 'lion': no teeth");
}

}  // namespace
}  // namespace commsched::engine

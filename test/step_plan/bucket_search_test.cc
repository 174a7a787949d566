#include "engine/step_plan/search/bucket_search.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "engine/model/model.h"
#include "test/step_plan/parameter_desc.h"

namespace commsched::engine {
namespace {

constexpr uint32_t kLayers = 24;
constexpr uint64_t kWeights = 8192;  // Of each layer: 32 KiB.

// Layers of one parameter each, and buckets that hold one.
class BucketSearchTest : public testing::Test {
 protected:
  BucketSearchTest() {
    for (uint32_t m = 0; m < kLayers; ++m) {
      const std::string name = "layer" + std::to_string(m);
      uint32_t module = 0;
      uint32_t parameter = 0;
      EXPECT_TRUE(model_.AddModule(name.c_str(), 1e6, 2e6, &module).ok());
      EXPECT_TRUE(model_
                      .AddParameter(ParameterDesc(module, (name + ".w").c_str(),
                                                  {kWeights}),
                                    &parameter)
                      .ok());
    }
    options_.layout.bucket_bytes = kWeights * sizeof(float);
    options_.layout.num_shards = kRanks;
  }

  static StepSpec SpecOf(uint32_t zero_stage) {
    StepSpec spec;
    spec.zero_stage = zero_stage;
    spec.world = kRanks;
    return spec;
  }

  // The bytes of the link per second, and what a launch takes of it besides.
  void SetLink(double bytes_per_s, int64_t latency_ns) {
    options_.profile.link_bytes_per_s = bytes_per_s;
    options_.profile.link_latency_ns = latency_ns;
    options_.profile.launch_ns = latency_ns;
  }

  void Search(uint32_t zero_stage) {
    const StepSpec spec = SpecOf(zero_stage);
    Layout given;
    ASSERT_TRUE(StepPlan::LayOut(spec, model_, options_, &given).ok());
    const Status found =
        SearchBuckets(spec, model_, options_, given,
                      RegisteredSequence(kLayers), &plan_, &choice_);
    ASSERT_TRUE(found.ok()) << found.message();
    ASSERT_NE(plan_, nullptr);
  }

  static int64_t PredictedStep(const StepPlan& plan) {
    commsched_prediction_t prediction = commsched_prediction_init();
    EXPECT_EQ(commsched_plan_predict(plan.plan(), nullptr, &prediction),
              COMMSCHED_OK);
    return prediction.step_ns;
  }
  // Of the options as they are.
  std::unique_ptr<const StepPlan> Given(uint32_t zero_stage) {
    const StepSpec spec = SpecOf(zero_stage);
    Layout layout;
    EXPECT_TRUE(StepPlan::LayOut(spec, model_, options_, &layout).ok());
    std::unique_ptr<const StepPlan> given;
    EXPECT_TRUE(StepPlan::Build(spec, model_, options_, layout,
                                RegisteredSequence(kLayers), &given)
                    .ok());
    return given;
  }

  static constexpr int32_t kRanks = 4;
  Model model_;
  StepPlan::Options options_;
  std::unique_ptr<const StepPlan> plan_;
  BucketChoice choice_;
};

// Where the plan merges launches of its own, buckets may stay as they are.
TEST_F(BucketSearchTest, BucketsAreMergedWhereLaunchesAreDear) {
  SetLink(1e9, /*latency_ns=*/2'000'000);
  options_.plan.coalesce_bytes = 0;
  for (uint32_t stage = 0; stage <= 1; ++stage) {
    Search(stage);
    EXPECT_EQ(choice_.given_buckets, kLayers);
    EXPECT_LT(plan_->layout().buckets.size(), kLayers);
    EXPECT_LT(choice_.step_ns, choice_.given_step_ns);
    EXPECT_EQ(choice_.step_ns, PredictedStep(*plan_));
  }
}

// Compute hides all, and fewer launches do as well.
TEST_F(BucketSearchTest, OfStepsThatAreAlikeThatWithFewestBucketsIsTaken) {
  SetLink(1e12, /*latency_ns=*/1);
  options_.profile.flops_per_s = 1e8;
  Search(/*zero_stage=*/1);
  EXPECT_LT(plan_->layout().buckets.size(), kLayers);
  EXPECT_LE(choice_.step_ns,
            choice_.given_step_ns + choice_.given_step_ns / 5000);
}

// A link that is slow and quick to begin: what comes last is not hidden, and
// the larger it is the longer it takes.
TEST_F(BucketSearchTest, BucketsThatAreMergedInVainStayAsGiven) {
  SetLink(1e8, /*latency_ns=*/1);
  options_.profile.flops_per_s = 1e9;
  Search(/*zero_stage=*/0);
  EXPECT_GE(plan_->layout().buckets.size(), kLayers / 2);
}

// A launch more takes time that is in no prediction.
TEST_F(BucketSearchTest, BucketsAreCutOnlyWhereThatSavesMuch) {
  uint32_t taken = 0;
  uint32_t left = 0;  // Though a little shorter.
  for (const uint64_t layers : {2, 4, 8, 24}) {
    for (const double bytes_per_s : {1e8, 1e9, 1e10}) {
      SetLink(bytes_per_s, /*latency_ns=*/1000);
      options_.layout.bucket_bytes = layers * kWeights * sizeof(float) / 2;
      const int64_t cut_ns = PredictedStep(*Given(/*zero_stage=*/1));
      options_.layout.bucket_bytes *= 2;
      Search(/*zero_stage=*/1);
      const bool is_cut =
          plan_->layout().buckets.size() > choice_.given_buckets;
      const bool saves_much =
          cut_ns <= choice_.given_step_ns - choice_.given_step_ns / 32;
      EXPECT_TRUE(saves_much || !is_cut) << layers << ", " << bytes_per_s;
      taken += is_cut ? 1 : 0;
      left += !saves_much && cut_ns < choice_.given_step_ns ? 1 : 0;
    }
  }
  EXPECT_GT(taken, 0u);
  EXPECT_GT(left, 0u);
}

// In stage 3 a bucket of several layers is whole as long as any is used.
TEST_F(BucketSearchTest, LittleMoreMemoryIsTaken) {
  SetLink(1e9, /*latency_ns=*/2'000'000);
  const auto bytes_of = [](const StepPlan& plan) {
    uint64_t bytes = plan.arena_bytes();
    for (uint32_t b = 0; b < plan.layout().buckets.size(); ++b) {
      for (const BucketBuffer& row : plan.BuffersOf(b)) {
        if (row.ownership == COMMSCHED_BOUND) bytes += row.bytes();
      }
    }
    return bytes;
  };
  for (uint32_t stage = 2; stage <= 3; ++stage) {
    const std::unique_ptr<const StepPlan> given = Given(stage);
    Search(stage);
    EXPECT_LE(bytes_of(*plan_), bytes_of(*given) + bytes_of(*given) / 32);
  }
}

TEST_F(BucketSearchTest, TheSameIsFoundAgain) {
  SetLink(1e9, /*latency_ns=*/200'000);
  std::string fingerprints[2];
  for (std::string& each : fingerprints) {
    Search(/*zero_stage=*/1);
    commsched_plan_info_t info = commsched_plan_info_init();
    ASSERT_EQ(commsched_plan_get_info(plan_->plan(), &info), COMMSCHED_OK);
    each.assign(reinterpret_cast<const char*>(info.fingerprint),
                sizeof(info.fingerprint));
  }
  EXPECT_EQ(fingerprints[0], fingerprints[1]);
}

}  // namespace
}  // namespace commsched::engine

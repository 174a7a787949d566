// The norm and what it decides, over ranks that hold other parts of a model:
// halves must do what one whole model does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "commsched/checkpoint.h"
#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

constexpr int32_t kParts = 2;
constexpr int32_t kShared = kParts;   // What is no part's own.
constexpr uint64_t kPartCount = 700;  // Of the parameter of a part.
constexpr uint32_t kPartSteps = 4;

// How the parts are trained: `shards` ranks each. Parts have one parameter of
// their own and one that both have.
struct PartRun {
  int32_t shards = 2;
  bool whole = false;  // One model with the parameters of all parts.
  uint32_t zero_stage = 2;
  bool deterministic = true;
  float loss_scale = 0;
  uint32_t spoiled_step = ~0u;  // With a gradient that is not finite.
  float clip_norm = 0.5f;
  bool cancel_all = false;
  // A step which one rank of the last part cancels, and before it the same
  // step is not taken at all.
  uint32_t cancelled_step = ~0u;
  uint32_t untaken_step = ~0u;
};

struct PartResult {
  std::string error;
  std::vector<std::vector<float>> weights;  // By part; then what they share.
  std::vector<double> norms;                // Of steps, of rank 0.
  std::vector<uint64_t> skipped;            // By rank of the world.
};

float PartGradient(int32_t shard, uint32_t step, int32_t part, uint64_t i) {
  const auto seed =
      static_cast<double>((static_cast<uint64_t>(shard) * 31 + step) * 17 +
                          static_cast<uint64_t>(part));
  return static_cast<float>(std::sin(seed + 0.37 * static_cast<double>(i)) *
                            (1 + part));
}

// One rank, with the parameters of one part or of all.
class PartRank {
 public:
  PartRank(const PartRun& run, commsched_world_t* world, int32_t rank)
      : run_(run),
        shard_(run.whole ? rank : rank / kParts),
        first_part_(run.whole ? 0 : rank % kParts),
        num_parts_(run.whole ? kParts : 1) {
    Require(commsched_context_create(world, rank, &context_));
    std::vector<int32_t> shards, parts;
    for (int32_t i = 0; i < run.shards; ++i) {
      shards.push_back(run.whole ? i : i * kParts + first_part_);
    }
    for (int32_t i = 0; i < kParts; ++i) parts.push_back(shard_ * kParts + i);
    Require(Group("dp", shards, &group_));
    if (!run.whole) {
      Require(Group("tp", parts, &norm_group_));
    }
    AddParameters();
  }
  ~PartRank() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(norm_group_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  PartRank(const PartRank&) = delete;
  PartRank& operator=(const PartRank&) = delete;

  commsched_status_t Create() {
    commsched_plan_options_t plan = commsched_plan_options_init();
    plan.deterministic = run_.deterministic ? 1 : 0;
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.groups = &norm_group_;
    desc.num_groups = run_.whole ? 0 : 1;
    desc.norm_group = norm_group_;
    desc.clip_norm = run_.clip_norm;
    desc.loss_scale = run_.loss_scale;
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    options.plan = &plan;
    options.zero_stage = run_.zero_stage;
    options.cancel_all = run_.cancel_all ? 1 : 0;
    return CreateEngine(desc, model_.get(), options, &engine_);
  }

  std::string Train(std::vector<double>* out_norms, uint64_t* out_skipped) {
    RETURN_MESSAGE_IF_ERROR(Create());
    for (uint32_t step = 0; step < kPartSteps; ++step) {
      if (step == run_.untaken_step) continue;
      if (std::string m = Step(step, out_norms); !m.empty()) return m;
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(engine_));
    commsched_engine_info_t info = commsched_engine_info_init();
    RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(engine_, &info));
    *out_skipped = info.skipped_steps;
    return "";
  }

  // Puts what this rank saves where it belongs.
  std::string Weights(std::vector<std::vector<float>>* out_weights) {
    for (uint32_t id = 0; id < parts_.size(); ++id) {
      // One of the ranks that have it.
      if (parts_[id] == kShared && first_part_ > 0) continue;
      uint64_t offset = 0, count = 0;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_master_range(engine_, id, &offset, &count));
      std::vector<float>& all = (*out_weights)[static_cast<size_t>(parts_[id])];
      RETURN_MESSAGE_IF_ERROR(commsched_engine_get_master_range(
          engine_, id, all.data() + offset, count));
    }
    return "";
  }

 private:
  commsched_status_t Group(const char* axis, const std::vector<int32_t>& ranks,
                           commsched_group_t** out) {
    return commsched_group_create(context_, axis, ranks.data(),
                                  static_cast<uint32_t>(ranks.size()), out);
  }

  // What both parts have comes first, so that a whole model adds in the order
  // of its parts.
  void AddParameters() {
    uint32_t id = 0;
    uint32_t shared_over = 0;
    Require(commsched_model_add_module(model_.get(), "m", 0, 0, &id));
    if (!run_.whole) {
      Require(
          commsched_model_add_group(model_.get(), "tp", kParts, &shared_over));
    }
    parts_ = {kShared};
    for (int32_t p = 0; p < num_parts_; ++p) parts_.push_back(first_part_ + p);
    for (const int32_t part : parts_) {
      const std::string name = "w" + std::to_string(part);
      const uint64_t dims[] = {kPartCount};
      commsched_parameter_desc_t desc = commsched_parameter_desc_init();
      desc.name = name.c_str();
      desc.dims = dims;
      desc.num_dims = 1;
      if (part == kShared) desc.replicated_over = shared_over;
      Require(commsched_model_add_parameter(model_.get(), &desc, &id));
    }
  }

  std::string Step(uint32_t step, std::vector<double>* out_norms) {
    const double* scale = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_loss_scale_address(engine_, &scale));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, 0));
    for (uint32_t id = 0; id < parts_.size(); ++id) {
      const int32_t part = parts_[id];
      const void* values = nullptr;
      void* address = nullptr;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_address(engine_, id, &values, &address));
      auto* const gradient = static_cast<float*>(address);
      for (uint64_t i = 0; i < kPartCount; ++i) {
        gradient[i] +=
            static_cast<float>(*scale) * PartGradient(shard_, step, part, i);
      }
      if (step == run_.spoiled_step && part == 1 && shard_ == 1) {
        gradient[3] = std::numeric_limits<float>::infinity();
      }
    }
    RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, 0, 0));
    if (step == run_.cancelled_step && first_part_ == kParts - 1 &&
        shard_ == run_.shards - 1) {
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_step_cancel(engine_, COMMSCHED_CANCEL_ALL));
    }
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine_, 0.1f));
    if (run_.clip_norm == 0) return Message(commsched_engine_step_end(engine_));
    double norm = 0;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine_, &norm));
    if (out_norms != nullptr) out_norms->push_back(norm);
    return Message(commsched_engine_step_end(engine_));
  }

  const PartRun run_;
  const int32_t shard_, first_part_, num_parts_;
  std::vector<int32_t> parts_;  // By parameter.
  const ModelHandle model_ = NewModel();
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_group_t* norm_group_ = nullptr;
  commsched_engine_t* engine_ = nullptr;
};

PartResult RunParts(const PartRun& run) {
  auto desc = commsched_world_desc_init();
  desc.size = run.whole ? run.shards : run.shards * kParts;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  PartResult result;
  result.weights.assign(kParts + 1, std::vector<float>(kPartCount));
  result.skipped.resize(static_cast<size_t>(desc.size));
  std::vector<std::string> messages(static_cast<size_t>(desc.size));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < desc.size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      PartRank part(run, world, rank);
      messages[r] =
          part.Train(rank == 0 ? &result.norms : nullptr, &result.skipped[r]);
      // The ranks save different elements.
      if (messages[r].empty()) messages[r] = part.Weights(&result.weights);
    });
  }
  for (std::thread& thread : threads) thread.join();
  commsched_world_destroy(world);
  for (const std::string& message : messages) {
    if (result.error.empty()) result.error = message;
  }
  return result;
}

// (Ranks per part, ZeRO stage, deterministic)
class ModelPartsTest
    : public ::testing::TestWithParam<std::tuple<int32_t, uint32_t, bool>> {
 protected:
  static PartRun Run() {
    PartRun run;
    run.shards = std::get<0>(GetParam());
    run.zero_stage = std::get<1>(GetParam());
    run.deterministic = std::get<2>(GetParam());
    return run;
  }

  static void ExpectWhatAWholeModelDoes(PartRun run) {
    const PartResult halves = RunParts(run);
    run.whole = true;
    const PartResult whole = RunParts(run);
    ASSERT_EQ(halves.error, "");
    ASSERT_EQ(whole.error, "");
    for (const uint64_t skipped : halves.skipped) {
      EXPECT_EQ(skipped, whole.skipped[0]);
    }
    if (run.deterministic) {
      EXPECT_EQ(halves.norms, whole.norms);
      EXPECT_EQ(halves.weights, whole.weights);
      return;
    }
    for (size_t p = 0; p < halves.weights.size(); ++p) {
      for (size_t i = 0; i < kPartCount; ++i) {
        ASSERT_NEAR(halves.weights[p][i], whole.weights[p][i], 1e-6);
      }
    }
  }
};

TEST_P(ModelPartsTest, HalvesClipAsOneModelDoes) {
  const PartResult halves = RunParts(Run());
  ASSERT_GE(halves.norms.size(), 1u);
  EXPECT_GT(halves.norms[0], 5);  // Far above what it is clipped to.
  ExpectWhatAWholeModelDoes(Run());
}

TEST_P(ModelPartsTest, HalvesSkipAndScaleTogether) {
  PartRun run = Run();
  run.spoiled_step = 1;
  run.loss_scale = 1024;
  const PartResult halves = RunParts(run);
  EXPECT_EQ(halves.error, "");
  for (const uint64_t skipped : halves.skipped) EXPECT_EQ(skipped, 1u);
  ExpectWhatAWholeModelDoes(run);
}

TEST_P(ModelPartsTest, HalvesCancelTogether) {
  for (const float clip_norm : {0.0f, 0.5f}) {
    PartRun run = Run();
    run.clip_norm = clip_norm;
    run.cancel_all = true;
    run.untaken_step = 2;
    const PartResult expected = RunParts(run);
    run.untaken_step = ~0u;
    run.cancelled_step = 2;
    const PartResult cancelled = RunParts(run);
    ASSERT_EQ(expected.error, "");
    ASSERT_EQ(cancelled.error, "");
    for (const uint64_t skipped : cancelled.skipped) EXPECT_EQ(skipped, 1u);
    // Of three ranks the order of additions is known in this mode only.
    if (run.deterministic || run.shards == 2) {
      EXPECT_EQ(cancelled.weights, expected.weights);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RanksStagesAndModes, ModelPartsTest,
                         Combine(Values(2, 3), Values(0u, 1u, 2u, 3u),
                                 Values(true, false)));

// Each engine on a rank of its own: no sharding, and one norm.
TEST(ModelPartsOfOneRankTest, PartsOnOneRankEachClipAsOneModelDoes) {
  for (const uint32_t stage : {0u, 2u}) {
    PartRun run;
    run.shards = 1;
    run.zero_stage = stage;
    const PartResult halves = RunParts(run);
    run.whole = true;
    const PartResult whole = RunParts(run);
    ASSERT_EQ(halves.error, "");
    EXPECT_EQ(halves.norms, whole.norms);
    EXPECT_EQ(halves.weights, whole.weights);
  }
}

}  // namespace
}  // namespace commsched::engine

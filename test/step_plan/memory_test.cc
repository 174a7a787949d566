// What a rank has memory for, by the plans of models like GPT-2: the state that
// it keeps from step to step, and the arena.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/step_plan.h"
#include "test/step_plan/parameter_desc.h"

namespace commsched::engine {
namespace {

struct GptSize {
  const char* name;
  uint64_t layers;
  uint64_t channels;
  uint64_t bucket_bytes;
};

// The models of the trainer.
constexpr GptSize kNano = {"nano", 4, 128, uint64_t{256} << 10};
constexpr GptSize kMini = {"mini", 6, 384, uint64_t{4} << 20};
constexpr GptSize kSmall = {"small", 12, 768, uint64_t{25} << 20};

// Its modules: an embedding, attention and MLP of each layer, and a head that
// is tied to the embedding.
class Gpt {
 public:
  explicit Gpt(const GptSize& size) {
    const uint64_t width = size.channels;
    AddModule("embed", 0);
    Add("wte", {256, width});
    Add("wpe", {256, width});
    for (uint64_t layer = 0; layer < size.layers; ++layer) {
      const std::string block = "h." + std::to_string(layer);
      AddModule(block + ".attn", 8 * width * width);
      AddNorm(block + ".ln_1", width);
      AddLinear(block + ".attn.c_attn", width, 3 * width);
      AddLinear(block + ".attn.c_proj", width, width);
      AddModule(block + ".mlp", 16 * width * width);
      AddNorm(block + ".ln_2", width);
      AddLinear(block + ".mlp.c_fc", width, 4 * width);
      AddLinear(block + ".mlp.c_proj", 4 * width, width);
    }
    AddModule("head", 2 * 256 * width);
    AddNorm("ln_f", width);
    EXPECT_TRUE(model_.UseParameter(module_, 0).ok());
  }

  const Model& model() const { return model_; }

 private:
  // `flops`: of a token, forward.
  void AddModule(const std::string& name, uint64_t flops) {
    const double forward = 1024.0 * static_cast<double>(flops);
    EXPECT_TRUE(
        model_.AddModule(name.c_str(), forward, 2 * forward, &module_).ok());
  }

  void Add(const std::string& name, const std::vector<uint64_t>& dims) {
    uint32_t parameter = 0;
    EXPECT_TRUE(model_
                    .AddParameter(ParameterDesc(module_, name.c_str(), dims),
                                  &parameter)
                    .ok());
  }

  void AddNorm(const std::string& name, uint64_t width) {
    Add(name + ".weight", {width});
    Add(name + ".bias", {width});
  }

  void AddLinear(const std::string& name, uint64_t in, uint64_t out) {
    Add(name + ".weight", {in, out});
    Add(name + ".bias", {out});
  }

  Model model_;
  uint32_t module_ = 0;
};

// Of one rank.
struct PlannedBytes {
  uint64_t elements = 0;  // Of the model.
  uint64_t kept = 0;      // From step to step.
  uint64_t due = 0;       // By the definition of the stage.
  uint64_t arena = 0;
  uint64_t slots = 0;        // Of offloaded gradients.
  uint64_t num_gathers = 0;  // Of parameters, in a step.

  uint64_t sum() const { return kept + arena + slots; }
};

PlannedBytes Plan(const GptSize& size, const StepSpec& spec,
                  uint64_t max_live_bytes = 0, uint64_t accumulate_bytes = 0) {
  const Gpt gpt(size);
  StepPlan::Options options;
  options.layout.bucket_bytes = size.bucket_bytes;
  options.layout.num_shards = spec.num_shards();
  options.max_live_bytes = max_live_bytes;
  options.accumulate_bytes = accumulate_bytes;
  PlannedBytes bytes;
  Layout layout;
  Status status = StepPlan::LayOut(spec, gpt.model(), options, &layout);
  EXPECT_TRUE(status.ok()) << status.message();
  std::unique_ptr<const StepPlan> plan;
  status =
      StepPlan::Build(spec, gpt.model(), options, layout,
                      RegisteredSequence(gpt.model().modules().size()), &plan);
  EXPECT_TRUE(status.ok()) << status.message();
  if (plan == nullptr) return bytes;
  for (uint32_t b = 0; b < layout.buckets.size(); ++b) {
    bytes.elements += layout.buckets[b].count;
    bytes.kept += BoundBytes(plan->BuffersOf(b));
    bytes.due += DueBytes(spec, plan->BuffersOf(b));
  }
  bytes.arena = plan->arena_bytes();
  bytes.slots = layout.gradient_slots * layout.gradient_slot_count *
                SizeOf(spec.precision.reduced);
  bytes.num_gathers = plan->graph().gathered.size();
  return bytes;
}

StepSpec SpecOf(uint32_t zero_stage, int32_t world, uint32_t micro_batches) {
  StepSpec spec;
  spec.zero_stage = zero_stage;
  spec.world = world;
  spec.micro_batches = micro_batches;
  spec.clip = true;
  return spec;
}

class MemoryTest : public testing::TestWithParam<GptSize> {};

// fp32 parameters, gradients and the two moments of AdamW: 16 bytes a weight.
TEST_P(MemoryTest, RanksKeepWhatTheStageSays) {
  for (const int32_t world : {1, 2, 4, 8}) {
    const auto ranks = static_cast<uint64_t>(world);
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      const PlannedBytes bytes = Plan(GetParam(), SpecOf(stage, world, 1));
      const uint64_t parameters = 4 * bytes.elements;
      const uint64_t shard = parameters / ranks;
      const uint64_t due[] = {4 * parameters, 2 * parameters + 2 * shard,
                              parameters + 3 * shard, 4 * shard};
      EXPECT_EQ(bytes.kept, due[stage]) << world << " ranks, stage " << stage;
      EXPECT_EQ(bytes.due, due[stage]) << world << " ranks, stage " << stage;
      EXPECT_EQ(bytes.arena > 0, stage >= 2);
    }
  }
}

TEST_P(MemoryTest, Stage3TakesLessThanStage2UnlessToldOtherwise) {
  for (const int32_t world : {2, 4, 8}) {
    for (const uint32_t micro_batches : {1, 4}) {
      for (const bool is_bf16 : {false, true}) {
        StepSpec spec = SpecOf(2, world, micro_batches);
        if (is_bf16) spec.precision = {COMMSCHED_BF16, COMMSCHED_BF16};
        const PlannedBytes stage2 = Plan(GetParam(), spec);
        spec.zero_stage = 3;
        const PlannedBytes stage3 = Plan(GetParam(), spec);
        EXPECT_LT(stage3.sum(), stage2.sum())
            << world << " ranks, " << micro_batches << " micro-batches, bf16 "
            << is_bf16;
      }
    }
  }
}

// A rank has no more gradients than those that are on their way.
TEST_P(MemoryTest, GradientsShareMemoryUnlessTheyAccumulate) {
  const PlannedBytes once = Plan(GetParam(), SpecOf(2, 4, 1));
  EXPECT_LT(once.arena, once.elements * sizeof(float) * 6 / 10);
  const PlannedBytes whole = Plan(GetParam(), SpecOf(2, 4, 4));
  EXPECT_EQ(whole.arena, whole.elements * sizeof(float));
}

// In memory each bucket has a shard for the sum, and one for what is added.
TEST_P(MemoryTest, OffloadedSumsTakeAFewShardsOfMemory) {
  // What a few passes are given is much of a model of few modules.
  const uint64_t parts = GetParam().layers < 12 ? 2 : 1;
  for (const int32_t world : {2, 4, 8}) {
    for (const uint32_t stage : {2u, 3u}) {
      for (const bool is_bf16 : {false, true}) {
        StepSpec spec = SpecOf(stage, world, 4);
        if (is_bf16) spec.precision = {COMMSCHED_BF16, COMMSCHED_BF16};
        const PlannedBytes in_memory = Plan(GetParam(), spec, 0, 1);
        spec.offloads_gradients = true;
        const PlannedBytes offloaded = Plan(GetParam(), spec, 0, 1);
        const uint64_t sums = in_memory.elements / spec.num_shards() *
                              (sizeof(float) + (is_bf16 ? 2 : 4));
        EXPECT_EQ(in_memory.kept - offloaded.kept, sums);
        EXPECT_LT(offloaded.sum() + sums - in_memory.sum(), sums * parts / 3)
            << world << " ranks, stage " << stage << ", bf16 " << is_bf16;
      }
    }
  }
}

TEST_P(MemoryTest, WithoutALimitEachBucketIsGatheredOnce) {
  const StepSpec spec = SpecOf(3, 4, 1);
  const PlannedBytes needed = Plan(GetParam(), spec);
  const PlannedBytes all = Plan(GetParam(), spec, UINT64_MAX);
  EXPECT_LT(needed.arena, all.arena);
  EXPECT_GT(needed.num_gathers, all.num_gathers);
  EXPECT_GE(all.arena, all.elements * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryTest,
                         testing::Values(kNano, kMini, kSmall),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace commsched::engine

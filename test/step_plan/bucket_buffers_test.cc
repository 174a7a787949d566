#include "engine/step_plan/bucket_buffers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {
namespace {

constexpr uint64_t kCount = 1024;

// "parameters bf16 1024, gradients bf16 1024 arena each": what is in the arena
// says so, and whether there is one for each micro-batch.
std::string TextOf(const StepSpec& spec, Bucket bucket) {
  bucket.dtype = spec.precision.parameters;
  std::string text;
  for (const BucketBuffer& row : BuffersOfBucket(spec, bucket)) {
    if (!text.empty()) text += ", ";
    text += row.name;
    text += row.dtype == COMMSCHED_F32 ? " " : " bf16 ";
    text += std::to_string(row.count);
    if (row.ownership == COMMSCHED_OWNED) text += " arena";
    if (row.by_micro_batch) text += " each";
  }
  return text;
}

StepSpec Stage(uint32_t zero_stage) {
  StepSpec spec;
  spec.zero_stage = zero_stage;
  spec.world = 4;
  return spec;
}

StepSpec InBf16(StepSpec spec) {
  spec.precision = {COMMSCHED_BF16, COMMSCHED_BF16};
  return spec;
}

Bucket Plain() {
  Bucket bucket;
  bucket.count = kCount;
  return bucket;
}

TEST(BucketBuffersTest, OfEachStage) {
  EXPECT_EQ(TextOf(Stage(0), Plain()),
            "parameters 1024, gradients 1024, adamw_state 2048");
  EXPECT_EQ(TextOf(Stage(1), Plain()),
            "parameters 1024, gradients 1024, adamw_state 512");
  EXPECT_EQ(TextOf(Stage(2), Plain()),
            "parameters 1024, gradients 1024 arena, gradient_shard 256, "
            "adamw_state 512");
  EXPECT_EQ(TextOf(Stage(3), Plain()),
            "parameter_shard 256, gradients 1024 arena, gradient_shard 256, "
            "adamw_state 512");
}

TEST(BucketBuffersTest, WhatStaysWholeIsNotGathered) {
  Bucket resident = Plain();
  resident.resident = true;
  EXPECT_EQ(TextOf(Stage(3), resident), TextOf(Stage(2), resident));
}

TEST(BucketBuffersTest, SixteenBitsHaveMasters) {
  EXPECT_EQ(TextOf(InBf16(Stage(1)), Plain()),
            "parameters bf16 1024, masters 256, gradients bf16 1024, "
            "adamw_state 512");
  StepSpec reduced_in_fp32 = InBf16(Stage(2));
  reduced_in_fp32.precision.reduced = COMMSCHED_F32;
  EXPECT_EQ(TextOf(reduced_in_fp32, Plain()),
            "parameters bf16 1024, masters 256, gradients bf16 1024 arena, "
            "sent 1024 arena, gradient_shard 256, adamw_state 512");
}

TEST(BucketBuffersTest, SumsOverMicroBatchesAreOfFp32) {
  StepSpec spec = InBf16(Stage(2));
  spec.micro_batches = 3;
  EXPECT_EQ(
      TextOf(spec, Plain()),
      "parameters bf16 1024, masters 256, gradients bf16 1024 arena each, "
      "accumulated 1024 arena, sent bf16 1024 arena, "
      "gradient_shard bf16 256, adamw_state 512");
  Bucket at_once = Plain();
  at_once.reduced_at_once = true;
  EXPECT_EQ(
      TextOf(spec, at_once),
      "parameters bf16 1024, masters 256, gradients bf16 1024 arena each, "
      "gradient_shard 256, gradient_summand bf16 256, adamw_state 512");
  spec = Stage(0);
  spec.micro_batches = 3;
  EXPECT_EQ(TextOf(spec, at_once),
            "parameters 1024, gradients 1024, gradient_shard 1024, "
            "adamw_state 2048");
}

TEST(BucketBuffersTest, OffloadedGradientsHaveWhatIsAddedToThemInTheArena) {
  StepSpec spec = Stage(2);
  spec.offloads_gradients = true;
  EXPECT_EQ(TextOf(spec, Plain()),
            "parameters 1024, gradients 1024 arena, adamw_state 512");
  spec = InBf16(spec);
  spec.micro_batches = 3;
  Bucket at_once = Plain();
  at_once.reduced_at_once = true;
  EXPECT_EQ(
      TextOf(spec, at_once),
      "parameters bf16 1024, masters 256, gradients bf16 1024 arena each, "
      "gradient_summand bf16 256 arena each, adamw_state 512");
  // A sum of fp32 takes two elements of 16 bits for each of its own.
  EXPECT_EQ(spec.slot_count(at_once), 512u);
  EXPECT_EQ(spec.slot_count(Plain()), 256u);
}

TEST(BucketBuffersTest, TheOptimizerSaysWhatItKeeps) {
  StepSpec spec = Stage(1);
  spec.optimizer_state = "sgd_state";
  spec.moments = 1;
  EXPECT_EQ(TextOf(spec, Plain()),
            "parameters 1024, gradients 1024, sgd_state 256");
  spec.moments = 0;
  EXPECT_EQ(TextOf(spec, Plain()), "parameters 1024, gradients 1024");
  spec = InBf16(Stage(1));
  spec.offloads = true;
  EXPECT_EQ(TextOf(spec, Plain()), "parameters bf16 1024, gradients bf16 1024");
}

TEST(BucketBuffersTest, WhatIsFrozenHasItsValuesOnly) {
  Bucket frozen = Plain();
  frozen.frozen = true;
  for (StepSpec spec : {Stage(0), Stage(2), Stage(3)}) {
    spec.micro_batches = 3;
    const std::string values =
        spec.zero_stage == 3 ? "parameter_shard" : "parameters";
    const std::string count = spec.zero_stage == 3 ? "256" : "1024";
    EXPECT_EQ(TextOf(spec, frozen), values + " " + count);
    EXPECT_EQ(TextOf(InBf16(spec), frozen), values + " bf16 " + count);
  }
  EXPECT_EQ(Stage(2).state_values(frozen), 0u);
}

TEST(BucketBuffersTest, BytesAreOfTheRankOrOfTheArena) {
  const std::vector<BucketBuffer> rows = BuffersOfBucket(Stage(3), Plain());
  EXPECT_EQ(BoundBytes(rows), 4u * (256 + 256 + 512));
  EXPECT_EQ(ArenaBytes(rows), 4u * 1024);
  EXPECT_EQ(FindBuffer(rows, BufferKind::kShard)->bytes(), 4u * 256);
  EXPECT_EQ(FindBuffer(rows, BufferKind::kMasters), nullptr);
}

}  // namespace
}  // namespace commsched::engine

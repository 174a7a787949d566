// Attention of sequences that ranks share: commsched/attention.h.

#include "commsched/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/attention/steps.h"
#include "test/engine/attention_toy.h"
#include "test/engine/expect_error.h"
#include "test/engine/model_handle.h"
#include "test/engine/toy_checkpoint.h"

namespace commsched::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The greatest error of a loss or of what a parameter has moved, relative to
// `expected`.
double WorstError(const AttentionToy &toy, const AttentionTraining &trained,
                  const AttentionTraining &expected) {
  AttentionToy still = toy;
  still.steps = 0;
  const AttentionTraining initial = TrainWhole(still);
  double worst = 0;
  for (size_t s = 0; s < expected.losses.size(); ++s) {
    worst =
        std::max(worst, std::fabs(trained.losses[s] / expected.losses[s] - 1));
  }
  for (size_t p = 0; p < expected.weights.size(); ++p) {
    double error = 0;
    double moved = 0;
    for (size_t i = 0; i < expected.weights[p].size(); ++i) {
      error += std::pow(trained.weights[p][i] - expected.weights[p][i], 2);
      moved += std::pow(expected.weights[p][i] - initial.weights[p][i], 2);
    }
    EXPECT_GT(moved, 0) << p;
    worst = std::max(worst, std::sqrt(error / moved));
  }
  return worst;
}

struct AttentionSplit {
  uint64_t heads;
  uint64_t kv_heads;
  int32_t ranks;
  uint32_t chunks;
};

std::ostream &operator<<(std::ostream &out, const AttentionSplit &s) {
  return out << s.heads << " heads, " << s.kv_heads << " of keys, " << s.ranks
             << " ranks, " << s.chunks << " chunks";
}

class AttentionSplitTest : public ::testing::TestWithParam<AttentionSplit> {
 protected:
  static AttentionToy Toy() {
    AttentionToy toy;
    toy.heads = GetParam().heads;
    toy.kv_heads = GetParam().kv_heads;
    toy.ranks = GetParam().ranks;
    toy.chunks = GetParam().chunks;
    return toy;
  }
};

TEST_P(AttentionSplitTest, TrainsAsOneRankWithWholeSequences) {
  const AttentionToy toy = Toy();
  const AttentionTraining trained = TrainShared(toy);
  ASSERT_EQ(trained.error, "");
  EXPECT_LE(WorstError(toy, trained, TrainWhole(toy)), 1e-5);
}

// Rounding to 8 bits is off by 2^-8 at most, and what is rounded on the way,
// eight times in each of two layers, is so independently of each other.
TEST_P(AttentionSplitTest, WhatTravelsAsSixteenBitsIsRounded) {
  AttentionToy toy = Toy();
  toy.dtype = COMMSCHED_BF16;
  toy.steps = 1;
  const AttentionTraining trained = TrainShared(toy);
  ASSERT_EQ(trained.error, "");
  const double worst = WorstError(toy, trained, TrainWhole(toy));
  EXPECT_LE(worst, std::sqrt(16.0) * 0x1p-8);
  EXPECT_GT(worst, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Splits, AttentionSplitTest,
    ::testing::Values(AttentionSplit{4, 0, 1, 1}, AttentionSplit{4, 0, 2, 1},
                      AttentionSplit{4, 0, 4, 1}, AttentionSplit{4, 0, 2, 2},
                      AttentionSplit{8, 0, 2, 3},  // Chunks of 1, 1, 2 heads.
                      AttentionSplit{6, 0, 4, 1},  // Ranks of 2 and of 1 head.
                      AttentionSplit{7, 0, 3, 2},
                      AttentionSplit{8, 4, 2, 2},  // Groups of two.
                      AttentionSplit{8, 2, 4, 1},  // Two ranks want each key.
                      AttentionSplit{6, 2, 4, 1},  // The second wants both.
                      AttentionSplit{9, 3, 2, 2}, AttentionSplit{4, 1, 2, 2}));

TEST(AttentionTest, WeightsAreTheSameBitsHoweverExchangesAndMemoryGo) {
  AttentionToy toy;
  toy.chunks = 2;
  const AttentionTraining expected = TrainShared(toy);
  ASSERT_EQ(expected.error, "");
  const std::pair<const char *, std::function<void(AttentionToy &)>>
      variants[] = {
          {"blocking", [](AttentionToy &t) { t.blocking = true; }},
          {"recompute", [](AttentionToy &t) { t.recompute = true; }},
          {"lent memory", [](AttentionToy &t) { t.lends_memory = true; }},
          {"ZeRO-2", [](AttentionToy &t) { t.zero_stage = 2; }},
          {"ZeRO-3", [](AttentionToy &t) { t.zero_stage = 3; }}};
  for (const auto &[name, change] : variants) {
    AttentionToy varied = toy;
    change(varied);
    const AttentionTraining trained = TrainShared(varied);
    EXPECT_EQ(trained.error, "") << name;
    EXPECT_EQ(trained.weights, expected.weights) << name;
  }
}

// That of the first module: norm, qkv weight and bias, out weight and bias.
TEST(AttentionTest, EachGradientIsCalledCompleteByTheLastOpThatAddsToIt) {
  const AttentionTraining trained = TrainShared(AttentionToy());
  ASSERT_EQ(trained.error, "");
  EXPECT_THAT(trained.completed, ElementsAre(3, 4, 0, 1, 2));
}

TEST(AttentionTest, AKernelThatFailsFailsTheRunWithItsMessage) {
  AttentionToy toy;
  toy.product_fails = true;
  EXPECT_EQ(TrainShared(toy).error, "no product today");
}

TEST(HeadSplitTest, UnevenHeadsGoToTheFirstRanks) {
  const HeadSplit split({.heads = 6, .kv_heads = 6, .ranks = 4});
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(split.share(0, r).q.count, r < 2 ? 2 : 1) << r;
  }
  EXPECT_EQ(split.share(0, 3).q.end(), 6);
  EXPECT_EQ(split.most_q(0), 2);
  EXPECT_EQ(split.kv_sent(), 6);
}

TEST(HeadSplitTest, KeysThatTwoRanksWantAreSentTwice) {
  const HeadSplit split({.heads = 8, .kv_heads = 2, .ranks = 4});
  EXPECT_EQ(split.kv_sent(), 4);
  EXPECT_EQ(split.share(0, 1).kv.first, 0);
  EXPECT_EQ(split.share(0, 2).kv.first, 1);
  EXPECT_EQ(split.share(0, 3).kv_column, 3);
}

// A description that is fine, of rank 0 of 2.
commsched_attention_desc_t GoodDesc() {
  commsched_attention_desc_t desc = commsched_attention_desc_init();
  desc.layers = 3;
  desc.heads = 4;
  desc.head_size = 8;
  desc.batch = 2;
  desc.seq = 16;
  desc.ranks = 2;
  desc.chunks = 2;
  return desc;
}

commsched_attention_info_t InfoOf(const commsched_attention_desc_t &desc) {
  commsched_attention_info_t info = commsched_attention_info_init();
  EXPECT_EQ(commsched_attention_get_info(&desc, &info), COMMSCHED_OK)
      << commsched_last_error();
  return info;
}

TEST(AttentionInfoTest, CountsOpsAndCollectivesOfALayer) {
  commsched_attention_desc_t desc = GoodDesc();
  commsched_attention_info_t info = InfoOf(desc);
  EXPECT_EQ(info.forward_ops, 10u);  // q, k, v, attend and out of two chunks.
  EXPECT_EQ(info.forward_collectives, 8u);
  EXPECT_EQ(info.backward_ops, 13u);
  EXPECT_EQ(info.backward_collectives, 8u);
  desc.blocking = 1;
  info = InfoOf(desc);
  EXPECT_EQ(info.forward_ops, 18u);
  EXPECT_EQ(info.backward_ops, 21u);
}

TEST(AttentionInfoTest, LayersShareTheMemoryOfOneWhereForwardsRunAgain) {
  commsched_attention_desc_t desc = GoodDesc();
  const uint64_t three = InfoOf(desc).memory_bytes;
  desc.layers = 1;
  const uint64_t one = InfoOf(desc).memory_bytes;
  EXPECT_LT(one, three);
  desc.layers = 3;
  desc.recompute = 1;
  EXPECT_EQ(InfoOf(desc).memory_bytes, one);
}

struct BadDesc {
  std::function<void(commsched_attention_desc_t &)> change;
  commsched_status_t code;
  std::string message;
};

TEST(AttentionInfoTest, RefusesWhatCannotBeShared) {
  const BadDesc cases[] = {
      {[](auto &d) { d.seq = 10, d.ranks = 4, d.chunks = 1; },
       COMMSCHED_INVALID_ARGUMENT,
       "sequence length is 10; it must be a multiple of the 4 ranks that share "
       "a sequence"},
      {[](auto &d) { d.chunks = 3; }, COMMSCHED_INVALID_ARGUMENT,
       "chunks of heads are 3; with 4 heads on 2 ranks they must be 1 to 2"},
      {[](auto &d) { d.ranks = 8; }, COMMSCHED_INVALID_ARGUMENT,
       "the model has 4 heads; the 8 ranks that share a sequence need one "
       "each"},
      {[](auto &d) { d.rank = 2; }, COMMSCHED_INVALID_ARGUMENT,
       "rank 2 of 2 that share a sequence"},
      {[](auto &d) { d.kv_heads = 3; }, COMMSCHED_INVALID_ARGUMENT,
       "kv_heads is 3; it must be a divisor of the 4 heads of queries"},
      {[](auto &d) { d.layers = 0; }, COMMSCHED_INVALID_ARGUMENT,
       "layers is 0; it must be 1 to 65536"},
      {[](auto &d) { d.heads = 0; }, COMMSCHED_INVALID_ARGUMENT,
       "heads is 0; it must be 1 to 65536"},
      {[](auto &d) { d.head_size = 65537; }, COMMSCHED_INVALID_ARGUMENT,
       "head_size is 65537; it must be 1 to 65536"},
      {[](auto &d) { d.batch = 0; }, COMMSCHED_INVALID_ARGUMENT,
       "batch is 0; it must be 1 to 16777216"},
      {[](auto &d) { d.seq = 0; }, COMMSCHED_INVALID_ARGUMENT,
       "seq is 0; it must be 1 to 16777216"},
      {[](auto &d) { d.width = 1u << 25; }, COMMSCHED_INVALID_ARGUMENT,
       "width is 33554432; it must be at most 16777216"},
      {[](auto &d) { d.dtype = COMMSCHED_F64; }, COMMSCHED_INVALID_ARGUMENT,
       "dtype is 1; it must be F32, F16 or BF16"},
      {[](auto &d) { d.batch = d.seq = 1u << 24; }, COMMSCHED_OUT_OF_RANGE,
       "3 layers of 16777216 sequences of 16777216 tokens take more than 2^60 "
       "bytes"},
      {[](auto &d) { d.struct_size = 0; }, COMMSCHED_INVALID_ARGUMENT,
       "struct_size of desc is 0"}};
  for (const BadDesc &each : cases) {
    commsched_attention_desc_t desc = GoodDesc();
    each.change(desc);
    commsched_attention_info_t info = commsched_attention_info_init();
    EXPECT_ENGINE_ERROR(commsched_attention_get_info(&desc, &info), each.code,
                        HasSubstr(each.message));
    EXPECT_EQ(info.memory_bytes, 0u) << each.message;
  }
}

TEST(AttentionCreateTest, RefusesKernelsAndMemoryThatWillNotDo) {
  commsched_attention_desc_t desc = GoodDesc();
  commsched_attention_t *attention = nullptr;
  EXPECT_ENGINE_ERROR(commsched_attention_create(&desc, &attention),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("desc.kernels is NULL"));
  commsched_attention_kernels_t kernels = PlainAttentionKernels();
  desc.kernels = &kernels;
  kernels.head_backward_value = nullptr;
  EXPECT_ENGINE_ERROR(commsched_attention_create(&desc, &attention),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("desc.kernels has no head_backward_value"));
  kernels = PlainAttentionKernels();
  const uint64_t bytes = InfoOf(desc).memory_bytes;
  std::vector<std::byte> memory(bytes + 64);
  void *aligned = memory.data();
  size_t space = memory.size();
  std::align(64, bytes, aligned, space);
  desc.memory = aligned;
  desc.memory_bytes = bytes - 1;
  EXPECT_ENGINE_ERROR(
      commsched_attention_create(&desc, &attention), COMMSCHED_INVALID_ARGUMENT,
      HasSubstr("memory_bytes is " + std::to_string(bytes - 1)));
  desc.memory = static_cast<std::byte *>(aligned) + 4;
  desc.memory_bytes = bytes;
  EXPECT_ENGINE_ERROR(commsched_attention_create(&desc, &attention),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("is not aligned to 64"));
  EXPECT_EQ(attention, nullptr);
}

TEST(AttentionRunTest, NeedsToBeRegistered) {
  commsched_attention_desc_t desc = GoodDesc();
  const commsched_attention_kernels_t kernels = PlainAttentionKernels();
  desc.kernels = &kernels;
  commsched_attention_t *attention = nullptr;
  ASSERT_EQ(commsched_attention_create(&desc, &attention), COMMSCHED_OK);
  EXPECT_ENGINE_ERROR(
      commsched_attention_run(attention, nullptr, 0, 0, 0, nullptr),
      COMMSCHED_INVALID_ARGUMENT, HasSubstr("engine is NULL"));
  SmallEngine engine({{"w", {4}}});
  EXPECT_ENGINE_ERROR(
      commsched_attention_run(attention, engine.get(), 0, 0, 0, nullptr),
      COMMSCHED_FAILED_PRECONDITION, HasSubstr("it is not registered"));
  commsched_attention_destroy(attention);
  commsched_attention_destroy(nullptr);
}

TEST(AttentionRegisterTest, RefusesAnotherNumberOfLayersAndAnotherGroup) {
  commsched_world_desc_t world_desc = commsched_world_desc_init();
  world_desc.size = 1;
  commsched_world_t *world = nullptr;
  ASSERT_EQ(commsched_world_create_inproc(&world_desc, &world), COMMSCHED_OK);
  commsched_context_t *context = nullptr;
  ASSERT_EQ(commsched_context_create(world, 0, &context), COMMSCHED_OK);
  const int32_t alone = 0;
  commsched_group_t *group = nullptr;
  ASSERT_EQ(commsched_group_create(context, "dp_shard", &alone, 1, &group),
            COMMSCHED_OK);
  const ModelHandle model = NewModel();
  commsched_attention_desc_t desc = GoodDesc();
  const commsched_attention_kernels_t kernels = PlainAttentionKernels();
  desc.kernels = &kernels;
  commsched_attention_t *attention = nullptr;
  ASSERT_EQ(commsched_attention_create(&desc, &attention), COMMSCHED_OK);
  const std::vector<commsched_attention_layer_t> layers(
      3, commsched_attention_layer_init());
  EXPECT_ENGINE_ERROR(commsched_attention_register(attention, model.get(), "sp",
                                                   group, layers.data(), 2),
                      COMMSCHED_INVALID_ARGUMENT,
                      HasSubstr("num_layers is 2; the description has 3"));
  EXPECT_ENGINE_ERROR(
      commsched_attention_register(attention, model.get(), "sp", group,
                                   layers.data(), 3),
      COMMSCHED_INVALID_ARGUMENT,
      HasSubstr("rank 0 of a group of 1; the description says rank 0 of 2"));
  commsched_attention_destroy(attention);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}

}  // namespace
}  // namespace commsched::engine

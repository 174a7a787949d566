// Sequence parallelism against one rank that has whole sequences: the exchanges
// are copies here, in the order in which the ops of all ranks run.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/trainer/head_split.h"
#include "examples/trainer/model.h"
#include "test/trainer/rank_model.h"

namespace commsched::trainer {
namespace {

// The elements of a part of a region: of a tile a range of its columns, row by
// row.
std::vector<int64_t> PartOf(const TravellingRegion& region, uint64_t first,
                            uint64_t count) {
  std::vector<int64_t> elements;
  const auto rows = static_cast<uint64_t>(region.rows);
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < count / rows; ++c) {
      elements.push_back(region.offset +
                         static_cast<int64_t>(r) * region.stride +
                         static_cast<int64_t>(first / rows + c));
    }
  }
  return elements;
}

void NarrowToBf16(const float* values, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    out[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

void WidenBf16(const uint16_t* values, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(values[i]) << 16);
  }
}

constexpr NarrowFormat kBf16 = {NarrowToBf16, WidenBf16};

// The ranks of one group on one thread.
class ShardedModel {
 public:
  ShardedModel(const GptConfig& config, int64_t batch, int64_t seq,
               ActivationOptions options)
      : ranks_(static_cast<size_t>(options.shard.ranks)) {
    for (int64_t& r = options.shard.rank; r < options.shard.ranks; ++r) {
      auto gpt = Gpt::Create(config, batch, seq, options);
      EXPECT_TRUE(gpt.ok()) << gpt.status();
      gpts_.push_back(*std::move(gpt));
    }
  }

  // The mean loss; gradients of it are added to those of `model`.
  double Run(RankModel& model, const TokenBatch& tokens) {
    const std::vector<const float*> parameters =
        Pointers<const float*>(model.parameters);
    const std::vector<float*> gradients = Pointers<float*>(model.gradients);
    for (auto& gpt : gpts_) {
      gpt->set_loss_scale(1.0f / static_cast<float>(ranks_));
      gpt->SetBatch(tokens.inputs.data(), tokens.targets.data());
    }
    const int num_modules = gpts_[0]->num_modules();
    for (int m = 0; m < num_modules; ++m) {
      for (auto& gpt : gpts_) gpt->Forward(m, parameters);
      RunSteps(m, /*backward=*/false, parameters, gradients);
    }
    for (int m = num_modules; m-- > 0;) {
      for (auto& gpt : gpts_) gpt->Backward(m, parameters, gradients);
      RunSteps(m, /*backward=*/true, parameters, gradients);
    }
    double loss = 0;
    for (auto& gpt : gpts_) loss += gpt->loss();
    return loss / static_cast<double>(ranks_);
  }

 private:
  template <typename Pointer>
  static std::vector<Pointer> Pointers(
      std::vector<std::vector<float>>& values) {
    std::vector<Pointer> pointers;
    for (std::vector<float>& each : values) pointers.push_back(each.data());
    return pointers;
  }

  void RunSteps(int module, bool backward, ParameterView parameters,
                GradientView gradients) {
    const size_t count = gpts_[0]->steps(module, backward).size();
    for (size_t i = 0; i < count; ++i) {
      if (gpts_[0]->steps(module, backward)[i].is_exchange()) {
        Exchange(module, backward, i);
        continue;
      }
      for (auto& gpt : gpts_) {
        gpt->RunStep(module, gpt->steps(module, backward)[i], parameters,
                     gradients);
        ForgetWidened(*gpt);
      }
    }
  }

  // What the next op reads is to be widened for it.
  static void ForgetWidened(Gpt& gpt) {
    for (const Travelling& each : gpt.travelling()) {
      if (each.narrow == nullptr) continue;
      std::fill_n(each.data, each.count,
                  std::numeric_limits<float>::quiet_NaN());
    }
  }

  void Exchange(int module, bool backward, size_t i) {
    const ShardedStep& step = gpts_[0]->steps(module, backward)[i];
    const auto at = [&](size_t from, size_t to) {
      return step.counts[from * ranks_ + to];
    };
    for (size_t from = 0; from < ranks_; ++from) {
      uint64_t first = 0;
      for (size_t to = 0; to < ranks_; ++to) {
        uint64_t arrived = 0;
        for (size_t r = 0; r < from; ++r) arrived += at(r, to);
        const auto source = PartOf(step.input, first, at(from, to));
        const auto target = PartOf(step.output, arrived, at(from, to));
        ASSERT_EQ(source.size(), target.size());
        const Travelling& out =
            gpts_[from]->travelling()[static_cast<size_t>(step.input.buffer)];
        const Travelling& in =
            gpts_[to]->travelling()[static_cast<size_t>(step.output.buffer)];
        for (size_t e = 0; e < source.size(); ++e) {
          if (in.narrow != nullptr) {
            in.narrow[target[e]] = out.narrow[source[e]];
          } else {
            in.data[target[e]] = out.data[source[e]];
          }
        }
        first += at(from, to);
      }
    }
  }

  const size_t ranks_;
  std::vector<std::unique_ptr<Gpt>> gpts_;
};

struct Case {
  int64_t heads;
  int64_t kv_heads;
  int64_t ranks;
  int64_t chunks;
};

constexpr int64_t kLayers = 2;

class ShardedModelTest : public ::testing::TestWithParam<Case> {
 protected:
  // Of the loss and each gradient, relative to those of whole sequences.
  static double WorstError(const NarrowFormat& format);
};

double ShardedModelTest::WorstError(const NarrowFormat& format) {
  const Case& c = GetParam();
  const GptConfig config = {.vocab = 29,
                            .context = 80,
                            .layers = kLayers,
                            .heads = c.heads,
                            .channels = 4 * c.heads,
                            .kv_heads = c.kv_heads};
  constexpr int64_t kBatch = 2;
  constexpr int64_t kSeq = 72;  // More than one block of queries.
  RankModel whole(config, kBatch, kSeq);
  whole.FillParameters(7);
  const TokenBatch tokens = RandomTokens(config.vocab, kBatch, kSeq, 8);
  whole.gpt().SetBatch(tokens.inputs.data(), tokens.targets.data());
  const double expected = whole.Forward();
  whole.Backward();
  const auto gradients = whole.gradients;

  whole.ClearGradients();
  ShardedModel sharded(config, kBatch, kSeq,
                       {.shard = {.ranks = c.ranks, .chunks = c.chunks},
                        .exchanged = format,
                        .recompute = false});
  double worst = std::fabs(sharded.Run(whole, tokens) - expected) / expected;
  for (size_t p = 0; p < gradients.size(); ++p) {
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < gradients[p].size(); ++i) {
      error += std::pow(whole.gradients[p][i] - gradients[p][i], 2);
      size += std::pow(gradients[p][i], 2);
    }
    EXPECT_GT(size, 0);
    worst = std::max(worst, std::sqrt(error / size));
  }
  return worst;
}

TEST_P(ShardedModelTest, LossAndGradientsAreThoseOfWholeSequences) {
  EXPECT_LE(WorstError({}), 1e-5);
}

// Rounding to 8 bits is off by 2^-8 at most, and what is rounded on the way,
// eight times in each layer, is so independently of each other.
TEST_P(ShardedModelTest, WhatTravelsAsSixteenBitsIsRounded) {
  const double worst = WorstError(kBf16);
  EXPECT_LE(worst, std::sqrt(8.0 * kLayers) * 0x1p-8);
  EXPECT_GT(worst, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Splits, ShardedModelTest,
    ::testing::Values(Case{4, 0, 2, 1}, Case{4, 0, 4, 1}, Case{4, 0, 2, 2},
                      Case{8, 0, 2, 3},  // Chunks of 1, 1 and 2 heads.
                      Case{6, 0, 4, 1},  // Ranks of 2 and of 1 head.
                      Case{7, 0, 3, 2}, Case{8, 4, 2, 2},  // Groups of two.
                      Case{8, 2, 4, 1},  // Two ranks want each key.
                      Case{6, 2, 4, 1},  // The second rank wants both.
                      Case{9, 3, 2, 2}, Case{4, 1, 2, 2}));

TEST(HeadSplitTest, UnevenHeadsGoToTheFirstRanks) {
  const GptConfig config = {.layers = 1, .heads = 6, .channels = 12};
  const HeadSplit split(config, {.ranks = 4, .chunks = 1});
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(split.share(0, r).q.count, r < 2 ? 2 : 1) << r;
  }
  EXPECT_EQ(split.share(0, 3).q.end(), 6);
  EXPECT_EQ(split.most_q(0), 2);
  EXPECT_EQ(split.kv_sent(), 6);
}

TEST(HeadSplitTest, KeysThatTwoRanksWantAreSentTwice) {
  const GptConfig config = {
      .layers = 1, .heads = 8, .channels = 16, .kv_heads = 2};
  const HeadSplit split(config, {.ranks = 4, .chunks = 1});
  EXPECT_EQ(split.kv_sent(), 4);
  EXPECT_EQ(split.share(0, 1).kv.first, 0);
  EXPECT_EQ(split.share(0, 2).kv.first, 1);
  EXPECT_EQ(split.share(0, 3).kv_column, 3);
}

TEST(HeadSplitTest, WhatCannotBeSharedIsRefused) {
  const GptConfig config = {.layers = 1, .heads = 4, .channels = 8};
  EXPECT_EQ(ValidateShard(config, 10, {.ranks = 4}).message(),
            "sequence length is 10; it must be a multiple of the 4 ranks that "
            "share a sequence");
  EXPECT_EQ(ValidateShard(config, 8, {.ranks = 2, .chunks = 3}).message(),
            "chunks of heads are 3; with 4 heads on 2 ranks they must be 1 to "
            "2");
  EXPECT_EQ(ValidateShard(config, 8, {.ranks = 8}).message(),
            "the model has 4 heads; the 8 ranks that share a sequence need one "
            "each");
  EXPECT_FALSE(ValidateShard(config, 8, {.ranks = 2, .rank = 2}).ok());
  EXPECT_TRUE(ValidateShard(config, 8, {.ranks = 4}).ok());
}

}  // namespace
}  // namespace commsched::trainer

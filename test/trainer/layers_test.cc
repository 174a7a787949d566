// Every layer's backward against central differences of its forward, element
// by element. The loss is a fixed random weighting of the layer's output.

#include "examples/trainer/layers.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "examples/trainer/kernels.h"
#include "examples/trainer/random.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

std::vector<float> RandomVector(int64_t count, absl::string_view name) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(RandomNormal(11, StreamOf(name), i));
  }
  return values;
}

double Weighted(const std::vector<float>& weights,
                const std::vector<float>& values) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(weights[i]) * values[i];
  }
  return sum;
}

// Expects gradient[i] to be d loss / d x[i], within 1/1000 of the largest.
void ExpectGradient(const std::string& what, std::vector<float>& x,
                    const std::vector<float>& gradient,
                    const std::function<double()>& loss) {
  constexpr float kStep = 5e-3f;
  double largest = 0;
  for (float value : gradient) {
    largest = std::max<double>(largest, std::abs(value));
  }
  ASSERT_GT(largest, 0) << what;
  for (size_t i = 0; i < x.size(); ++i) {
    const float before = x[i];
    x[i] = before + kStep;
    const float above_at = x[i];
    const double above = loss();
    x[i] = before - kStep;
    const float below_at = x[i];
    const double below = loss();
    x[i] = before;
    const double slope =
        (above - below) / (static_cast<double>(above_at) - below_at);
    EXPECT_NEAR(gradient[i], slope, 1e-3 * largest) << what << "[" << i << "]";
  }
}

TEST(LayersTest, LinearBackwardMatchesDifferences) {
  const LinearShape shape = {.rows = 5, .in = 7, .out = 3};
  std::vector<float> x = RandomVector(5 * 7, "x");
  std::vector<float> weight = RandomVector(7 * 3, "weight");
  const std::vector<float> dy = RandomVector(5 * 3, "dy");
  const auto loss = [&] {
    std::vector<float> y(5 * 3);
    LinearForward(shape, x.data(), weight.data(), y.data());
    return Weighted(dy, y);
  };
  std::vector<float> dx(5 * 7, 99.0f);
  std::vector<float> d_weight(7 * 3);
  LinearBackwardInput(shape, dy.data(), weight.data(), dx.data());
  LinearBackwardWeight(shape, x.data(), dy.data(), d_weight.data());
  ExpectGradient("x", x, dx, loss);
  ExpectGradient("weight", weight, d_weight, loss);
}

TEST(LayersTest, LinearForwardAddAddsTheProduct) {
  const LinearShape shape = {.rows = 2, .in = 3, .out = 2};
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const std::vector<float> weight = {1, 0, 0, 1, 1, 1};
  std::vector<float> y = {10, 20, 30, 40};
  LinearForwardAdd(shape, x.data(), weight.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{14, 25, 40, 51}));
}

TEST(LayersTest, LayerNormBackwardMatchesDifferences) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kCols = 21;
  std::vector<float> x = RandomVector(kRows * kCols, "x");
  std::vector<float> weight = RandomVector(kCols, "weight");
  std::vector<float> bias = RandomVector(kCols, "bias");
  const std::vector<float> dy = RandomVector(kRows * kCols, "dy");
  std::vector<float> mean(kRows);
  std::vector<float> inverse(kRows);
  const LayerNormStatistics statistics = {mean.data(), inverse.data()};
  const auto loss = [&] {
    std::vector<float> y(kRows * kCols);
    LayerNorm(x.data(), weight.data(), bias.data(), kRows, kCols, y.data(),
              statistics);
    return Weighted(dy, y);
  };
  loss();
  std::vector<float> dx(kRows * kCols);
  std::vector<float> d_weight(kCols);
  std::vector<float> d_bias(kCols);
  LayerNormBackward(dy.data(), x.data(), weight.data(), statistics, kRows,
                    kCols, {dx.data(), d_weight.data(), d_bias.data()});
  ExpectGradient("x", x, dx, loss);
  ExpectGradient("weight", weight, d_weight, loss);
  ExpectGradient("bias", bias, d_bias, loss);
}

TEST(LayersTest, GeluBackwardMatchesDifferences) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kCols = 37;
  std::vector<float> x = RandomVector(kRows * kCols, "x");
  std::vector<float> bias = RandomVector(kCols, "bias");
  const std::vector<float> dy = RandomVector(kRows * kCols, "dy");
  std::vector<float> biased;
  const auto loss = [&] {
    biased = x;
    std::vector<float> y(x.size());
    AddBiasAndGelu(bias.data(), kRows, kCols, biased.data(), y.data());
    return Weighted(dy, y);
  };
  loss();
  std::vector<float> dx = dy;
  std::vector<float> d_bias(kCols);
  GeluBackward(biased.data(), kRows, kCols, dx.data(), d_bias.data());
  ExpectGradient("x", x, dx, loss);
  ExpectGradient("bias", bias, d_bias, loss);
}

void ExpectAttentionGradient(const AttentionShape& shape) {
  const int64_t rows = shape.batch * shape.seq;
  std::vector<float> qkv = RandomVector(rows * shape.row(), "qkv");
  const std::vector<float> dy = RandomVector(rows * shape.channels(), "dy");
  std::vector<float> probabilities(rows * shape.heads * shape.seq);
  const auto loss = [&] {
    std::vector<float> y(rows * shape.channels());
    AttentionForward(shape, qkv.data(), probabilities.data(), y.data());
    return Weighted(dy, y);
  };
  loss();
  const std::vector<float> kept = probabilities;
  std::vector<float> scratch(shape.scratch_count());
  std::vector<float> d_qkv(qkv.size(), 99.0f);
  AttentionBackward(shape, qkv.data(), kept.data(), dy.data(), scratch.data(),
                    d_qkv.data());
  ExpectGradient("qkv", qkv, d_qkv, loss);
}

TEST(LayersTest, AttentionBackwardMatchesDifferences) {
  ExpectAttentionGradient({.batch = 2, .seq = 5, .heads = 2, .head_size = 3});
}

// 70 is one full block of queries and a ragged one.
TEST(LayersTest, AttentionOverSeveralBlocksMatchesDifferences) {
  ExpectAttentionGradient({.batch = 1, .seq = 70, .heads = 2, .head_size = 2});
}

TEST(LayersTest, AttentionOfGroupedQueriesMatchesDifferences) {
  ExpectAttentionGradient(
      {.batch = 2, .seq = 5, .heads = 6, .head_size = 2, .kv_heads = 2});
}

TEST(LayersTest, GroupedQueriesSeeTheKeysAndValuesOfTheirGroup) {
  const AttentionShape grouped = {
      .batch = 1, .seq = 3, .heads = 4, .head_size = 2, .kv_heads = 2};
  const std::vector<float> qkv = RandomVector(3 * grouped.row(), "qkv");
  // The same with the heads of keys and values written out.
  const AttentionShape full = {
      .batch = 1, .seq = 3, .heads = 4, .head_size = 2};
  std::vector<float> repeated;
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t column : {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  8,  9,
                           10, 11, 10, 11, 12, 13, 12, 13, 14, 15, 14, 15}) {
      repeated.push_back(qkv[t * grouped.row() + column]);
    }
  }
  std::vector<float> probabilities(4 * 3 * 3);
  std::vector<float> y(3 * 8);
  std::vector<float> expected(3 * 8);
  AttentionForward(grouped, qkv.data(), probabilities.data(), y.data());
  AttentionForward(full, repeated.data(), probabilities.data(),
                   expected.data());
  EXPECT_EQ(y, expected);
}

TEST(LayersTest, AttentionSeesOnlyThePast) {
  const AttentionShape shape = {
      .batch = 1, .seq = 70, .heads = 1, .head_size = 2};
  const std::vector<float> qkv = RandomVector(70 * 6, "qkv");
  std::vector<float> probabilities(70 * 70);
  std::vector<float> y(70 * 2);
  AttentionForward(shape, qkv.data(), probabilities.data(), y.data());
  for (int64_t query = 0; query < 70; ++query) {
    double sum = 0;
    for (int64_t key = 0; key < 70; ++key) {
      const float p = probabilities[query * 70 + key];
      EXPECT_EQ(p > 0, key <= query) << query << " looks at " << key;
      sum += p;
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
  EXPECT_FLOAT_EQ(y[0], qkv[4]);  // The first token sees its own value.
  EXPECT_FLOAT_EQ(y[1], qkv[5]);
}

TEST(LayersTest, EmbeddingAddsTokenAndPosition) {
  const EmbeddingShape shape = {.batch = 2, .seq = 2, .channels = 2};
  const std::vector<uint8_t> tokens = {1, 0, 1, 1};
  const std::vector<float> wte = {1, 2, 3, 4};
  const std::vector<float> wpe = {10, 20, 30, 40};
  std::vector<float> x(8);
  EmbeddingForward(shape, tokens.data(), wte.data(), wpe.data(), x.data());
  EXPECT_EQ(x, (std::vector<float>{13, 24, 31, 42, 13, 24, 33, 44}));
}

TEST(LayersTest, EmbeddingBackwardAddsUpRepeatedTokens) {
  const EmbeddingShape shape = {.batch = 2, .seq = 2, .channels = 1};
  const std::vector<uint8_t> tokens = {1, 0, 1, 1};
  const std::vector<float> dx = {1, 2, 4, 8};
  std::vector<float> d_wte = {100, 200};
  std::vector<float> d_wpe = {0, 0};
  EmbeddingBackward(shape, tokens.data(), dx.data(), d_wte.data(),
                    d_wpe.data());
  EXPECT_EQ(d_wte, (std::vector<float>{102, 213}));
  EXPECT_EQ(d_wpe, (std::vector<float>{5, 10}));
}

TEST(LayersTest, CrossEntropyBackwardMatchesDifferences) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kVocab = 19;
  std::vector<float> logits = RandomVector(kRows * kVocab, "logits");
  const std::vector<uint8_t> targets = {4, 0, 18};
  std::vector<float> log_sums(kRows);
  const auto loss = [&] {
    return 0.5 * CrossEntropy(logits.data(), targets.data(), kRows, kVocab,
                              log_sums.data());
  };
  loss();
  std::vector<float> d(logits.size(), 99.0f);
  CrossEntropyBackward(logits.data(), targets.data(), log_sums.data(), kRows,
                       kVocab, 0.5f, d.data());
  ExpectGradient("logits", logits, d, loss);
}

}  // namespace
}  // namespace commsched::trainer

#include "examples/trainer/kernels.h"

#include <cmath>
#include <limits>
#include <vector>

#include "examples/trainer/vector_math.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

double RelativeError(double actual, double expected) {
  return std::abs(actual - expected) / std::abs(expected);
}

double GeluInDouble(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(VectorExpTest, IsWithinTwoUnitsOfTheLastPlaceOfLibm) {
  double worst = 0;
  for (double x = -86.9; x < 88; x += 0.00037) {
    const auto argument = static_cast<float>(x);
    worst = std::max(
        worst, RelativeError(VectorExp(argument), std::exp(double{argument})));
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(VectorExpTest, OfZeroIsOne) { EXPECT_EQ(VectorExp(0.0f), 1.0f); }

TEST(VectorExpTest, NeitherOverflowsNorLeavesTheNormalNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(VectorExp(infinity), VectorExp(88.0f));
  EXPECT_TRUE(std::isfinite(VectorExp(infinity)));
  EXPECT_EQ(VectorExp(-infinity), VectorExp(-87.0f));
  EXPECT_TRUE(std::isnormal(VectorExp(-infinity)));
}

// A NaN must reach the loss instead of becoming a number.
TEST(VectorExpTest, KeepsNan) {
  EXPECT_TRUE(std::isnan(VectorExp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorGeluTest, IsTheTanhFormula) {
  for (double x = -4; x < 12; x += 0.0013) {
    const auto argument = static_cast<float>(x);
    EXPECT_NEAR(VectorGelu(argument), GeluInDouble(argument),
                3e-7 * std::abs(argument))
        << "x " << argument;
  }
}

TEST(VectorGeluTest, DerivativeIsTheSlopeOfTheFormula) {
  for (double x = -12; x < 12; x += 0.0013) {
    const auto argument = static_cast<float>(x);
    constexpr double kStep = 1e-5;
    const double slope =
        (GeluInDouble(argument + kStep) - GeluInDouble(argument - kStep)) /
        (2 * kStep);
    EXPECT_NEAR(VectorGeluDerivative(argument), slope, 5e-7)
        << "x " << argument;
  }
}

TEST(VectorGeluTest, GoesToZeroAndToIdentityFarOut) {
  EXPECT_NEAR(VectorGelu(-30.0f), 0.0f, 1e-30);
  EXPECT_EQ(VectorGelu(30.0f), 30.0f);
  EXPECT_NEAR(VectorGeluDerivative(-30.0f), 0.0f, 1e-30);
  EXPECT_EQ(VectorGeluDerivative(30.0f), 1.0f);
}

// 37 columns: a vector of every width, and a remainder.
constexpr int64_t kRows = 3;
constexpr int64_t kCols = 37;

std::vector<float> Ramp(float step) {
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = step * static_cast<float>(i % 53) - 1.0f;
  }
  return values;
}

TEST(KernelsTest, BiasIsAddedToEveryRow) {
  const std::vector<float> bias(kCols, 0.5f);
  std::vector<float> x = Ramp(0.25f);
  std::vector<float> out(x.size());
  CopyWithBias(x.data(), bias.data(), kRows, kCols, out.data());
  AddBias(bias.data(), kRows, kCols, x.data());
  EXPECT_EQ(x, out);
  EXPECT_EQ(x[0], -0.5f);
  EXPECT_EQ(x[kCols], -0.5f + 0.25f * kCols);
}

TEST(KernelsTest, ColumnSumsAreAdded) {
  const std::vector<float> x = Ramp(0.25f);
  std::vector<float> sums(kCols, 7.0f);
  AddColumnSums(x.data(), kRows, kCols, sums.data());
  for (int64_t c = 0; c < kCols; ++c) {
    EXPECT_EQ(sums[c], 7.0f + x[c] + x[kCols + c] + x[2 * kCols + c]);
  }
}

TEST(KernelsTest, LayerNormLeavesMeanZeroAndVarianceOne) {
  std::vector<float> x = Ramp(0.25f);
  for (float& value : x) value = 1000.0f + 10.0f * value;
  const std::vector<float> ones(kCols, 1.0f);
  const std::vector<float> zeros(kCols, 0.0f);
  std::vector<float> out(x.size());
  float mean[kRows];
  float inverse[kRows];
  LayerNorm(x.data(), ones.data(), zeros.data(), kRows, kCols, out.data(),
            {mean, inverse});
  for (int64_t r = 0; r < kRows; ++r) {
    double sum = 0;
    double squares = 0;
    for (int64_t c = 0; c < kCols; ++c) {
      sum += out[r * kCols + c];
      squares += std::pow(out[r * kCols + c], 2);
    }
    EXPECT_NEAR(sum / kCols, 0, 1e-5);
    EXPECT_NEAR(squares / kCols, 1, 1e-4);
    EXPECT_NEAR(mean[r], 1000, 100);
  }
}

TEST(KernelsTest, CausalSoftmaxOfHugeScoresStaysFinite) {
  const CausalRows shape = {.first_query = 1, .rows = 2, .stride = 4};
  std::vector<float> scores = {1e4f, 1e4f, 5, 9, -1e4f, 1e4f, 0, 9};
  CausalSoftmax(shape, 0.5f, scores.data());
  EXPECT_FLOAT_EQ(scores[0], 0.5f);
  EXPECT_FLOAT_EQ(scores[1], 0.5f);
  EXPECT_EQ(scores[2], 0.0f);  // Masked.
  EXPECT_EQ(scores[3], 9.0f);  // Beyond keys(): untouched.
  EXPECT_FLOAT_EQ(scores[5], 1.0f);
  EXPECT_EQ(scores[7], 9.0f);
}

TEST(KernelsTest, CrossEntropyOfEqualLogitsIsTheLogOfTheVocabulary) {
  const std::vector<float> logits(2 * kCols, 80.0f);
  const uint8_t targets[] = {0, kCols - 1};
  float log_sums[2];
  const double loss = CrossEntropy(logits.data(), targets, 2, kCols, log_sums);
  EXPECT_NEAR(loss, 2 * std::log(37.0), 1e-5);
}

TEST(KernelsTest, CrossEntropyGradientOfARowSumsToZero) {
  const std::vector<float> logits = Ramp(0.1f);
  const uint8_t targets[] = {0, 9, 36};
  float log_sums[kRows];
  CrossEntropy(logits.data(), targets, kRows, kCols, log_sums);
  std::vector<float> d(logits.size());
  CrossEntropyBackward(logits.data(), targets, log_sums, kRows, kCols, 1.0f,
                       d.data());
  for (int64_t r = 0; r < kRows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < kCols; ++c) sum += d[r * kCols + c];
    EXPECT_NEAR(sum, 0, 1e-6);
    EXPECT_LT(d[r * kCols + targets[r]], 0);
  }
}

}  // namespace
}  // namespace commsched::trainer

#include "examples/trainer/random.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

// The published outputs of SplitMix64 for seed 1234567.
TEST(RandomTest, Mix64IsSplitMix64) {
  EXPECT_EQ(Mix64(1234567 + kGoldenRatio), 6457827717110365317u);
  EXPECT_EQ(Mix64(1234567 + 2 * kGoldenRatio), 3203168211198807973u);
}

// Test vectors of the FNV-1a specification.
TEST(RandomTest, StreamOfIsFnv1a) {
  static_assert(StreamOf("") == 0xCBF29CE484222325u);
  static_assert(StreamOf("a") == 0xAF63DC4C8601EC8Cu);
  static_assert(StreamOf("foobar") == 0x85944171F73967E8u);
}

TEST(RandomTest, SeedStreamAndIndexEachMatter) {
  const uint64_t bits = RandomBits(1, 2, 3);
  EXPECT_NE(bits, RandomBits(2, 2, 3));
  EXPECT_NE(bits, RandomBits(1, 3, 3));
  EXPECT_NE(bits, RandomBits(1, 2, 4));
  EXPECT_EQ(bits, RandomBits(1, 2, 3));
}

TEST(RandomTest, UniformFillsTheUnitIntervalEvenly) {
  std::vector<int> bins(16);
  for (uint64_t i = 0; i < 16000; ++i) {
    const double value = RandomUniform(5, 6, i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    ++bins[static_cast<size_t>(value * 16)];
  }
  for (int count : bins) EXPECT_NEAR(count, 1000, 150);
}

TEST(RandomTest, BelowStaysBelow) {
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 7000; ++i) ++counts.at(RandomBelow(7, 5, 6, i));
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(RandomTest, NormalHasTheMomentsOfTheNormal) {
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double value = RandomNormal(9, 10, i);
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.015);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourths / kCount, 3, 0.15);
}

}  // namespace
}  // namespace commsched::trainer

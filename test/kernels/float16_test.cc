#include "kernels/float16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace commsched {
namespace {

// The value of binary16 `bits`, by the definition of the format.
double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsHalfNan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }

TEST(Float16Test, EveryHalfHasItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (IsHalfNan(half)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else if ((half & 0x7fff) == 0x7c00) {
      EXPECT_TRUE(std::isinf(value)) << bits;
      EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0);
    } else {
      EXPECT_EQ(value, HalfValue(half)) << bits;
      EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0);
    }
  }
}

TEST(Float16Test, EveryHalfSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t back = FloatToHalf(HalfToFloat(half));
    if (IsHalfNan(half)) {
      EXPECT_TRUE(IsHalfNan(back)) << bits;
    } else {
      EXPECT_EQ(back, half) << bits;
    }
  }
}

// Between two neighbours: to the nearer, from the middle to the even one.
TEST(Float16Test, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits + 1 < 0x7c00; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle =
        static_cast<float>((HalfValue(low) + HalfValue(high)) / 2);
    const uint16_t even = (low & 1) == 0 ? low : high;
    EXPECT_EQ(FloatToHalf(middle), even) << bits;
    EXPECT_EQ(FloatToHalf(-middle), even | 0x8000) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafterf(middle, 0)), low) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafterf(middle, 1e6f)), high) << bits;
  }
}

TEST(Float16Test, TooLargeBecomesInfinity) {
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::infinity()), 0x7c00);
}

TEST(Float16Test, TooSmallBecomesZeroOfItsSign) {
  EXPECT_EQ(FloatToHalf(1e-30f), 0x0000);
  EXPECT_EQ(FloatToHalf(-1e-30f), 0x8000);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Float16Test, EveryBfloat16SurvivesTheWayThere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const uint16_t back = FloatToBfloat16(Bfloat16ToFloat(value));
    if (std::isnan(Bfloat16ToFloat(value))) {
      EXPECT_TRUE(std::isnan(Bfloat16ToFloat(back))) << bits;
    } else {
      EXPECT_EQ(back, value) << bits;
    }
  }
}

TEST(Float16Test, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBfloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(FloatToBfloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(FloatToBfloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBfloat16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
}

TEST(Float16Test, ANanWithLowBitsOnlyStaysNan) {
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(nan))));
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(nan))));
}

}  // namespace
}  // namespace commsched

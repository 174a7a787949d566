#include "base/checked_math.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(CheckedMathTest, ResultsThatFitAreExact) {
  EXPECT_EQ(CheckedAdd<int64_t>(INT64_MAX - 1, 1), INT64_MAX);
  EXPECT_EQ(CheckedAdd<int64_t>(INT64_MIN, 1), INT64_MIN + 1);
  EXPECT_EQ(CheckedAdd<uint64_t>(UINT64_MAX - 1, 1), UINT64_MAX);
  EXPECT_EQ(CheckedMul<int64_t>(int64_t{1} << 31, int64_t{1} << 31),
            int64_t{1} << 62);
  EXPECT_EQ(CheckedMul<uint64_t>(uint64_t{1} << 32, 0x80000000u),
            uint64_t{1} << 63);
}

TEST(CheckedMathTest, SignedOverflowIsRefusedBothWays) {
  EXPECT_FALSE(CheckedAdd<int64_t>(INT64_MAX, 1).has_value());
  EXPECT_FALSE(CheckedAdd<int64_t>(INT64_MIN, -1).has_value());
  EXPECT_FALSE(CheckedMul<int64_t>(INT64_MAX, 2).has_value());
  EXPECT_FALSE(CheckedMul<int64_t>(INT64_MIN, -1).has_value());
}

TEST(CheckedMathTest, UnsignedOverflowIsRefused) {
  EXPECT_FALSE(CheckedAdd<uint64_t>(UINT64_MAX, 1).has_value());
  EXPECT_FALSE(
      CheckedMul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32).has_value());
}

}  // namespace
}  // namespace commsched

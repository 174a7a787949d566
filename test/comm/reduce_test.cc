// Reductions of every type against a reference are in test/conformance; here is
// what is settled about single values.
#include "comm/reduce.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "comm/float16.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

template <typename T>
T Reduce(DType dtype, ReduceOp op, const std::vector<T>& values) {
  const ReduceKernel& kernel = ReduceKernelFor(dtype);
  alignas(8) unsigned char accumulator[8];
  kernel.load(accumulator, &values[0], 1);
  for (size_t i = 1; i < values.size(); ++i) {
    kernel.combine(op, accumulator, &values[i], 1);
  }
  T result;
  kernel.store(op, static_cast<int>(values.size()), &result, accumulator, 1);
  return result;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ReduceTest, NanWinsMinAndMaxWhereverItIs) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kF32, op, {kNan, 1, 2})));
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kF32, op, {1, kNan, 2})));
    EXPECT_TRUE(std::isnan(Reduce<double>(DType::kF64, op, {1, 2, kNan})));
    EXPECT_TRUE(std::isnan(HalfToFloat(
        Reduce<uint16_t>(DType::kF16, op, {0x3c00, 0x7e00, 0x4000}))));
  }
}

TEST(ReduceTest, IntegerSumsAndProductsWrap) {
  EXPECT_EQ(Reduce<int8_t>(DType::kI8, ReduceOp::kSum, {100, 100}), -56);
  EXPECT_EQ(Reduce<uint8_t>(DType::kU8, ReduceOp::kProd, {16, 17}), 16);
  EXPECT_EQ(Reduce<int32_t>(DType::kI32, ReduceOp::kSum, {INT32_MAX, 1}),
            INT32_MIN);
  EXPECT_EQ(Reduce<int64_t>(DType::kI64, ReduceOp::kProd, {INT64_MIN, -1}),
            INT64_MIN);
}

TEST(ReduceTest, IntegerAveragesTruncateTowardsZero) {
  EXPECT_EQ(Reduce<int32_t>(DType::kI32, ReduceOp::kAvg, {-3, -4}), -3);
  EXPECT_EQ(Reduce<int32_t>(DType::kI32, ReduceOp::kAvg, {3, 4}), 3);
  EXPECT_EQ(Reduce<int8_t>(DType::kI8, ReduceOp::kAvg, {-1, 0}), 0);
  EXPECT_EQ(Reduce<int64_t>(DType::kI64, ReduceOp::kAvg, {-9, 0, 1}), -2);
}

// 2048 + 1 is no binary16, so a sum in binary16 would lose both ones.
TEST(ReduceTest, HalfSumsAreKeptInSinglePrecisionAndRoundedOnce) {
  const uint16_t big = FloatToHalf(2048), one = FloatToHalf(1);
  EXPECT_EQ(HalfToFloat(
                Reduce<uint16_t>(DType::kF16, ReduceOp::kSum, {big, one, one})),
            2050);
  const uint16_t wide = FloatToBfloat16(256);
  EXPECT_EQ(Bfloat16ToFloat(Reduce<uint16_t>(
                DType::kBF16, ReduceOp::kSum,
                {wide, FloatToBfloat16(1), FloatToBfloat16(1)})),
            258);
}

TEST(ReduceTest, SumsAreTakenInTheOrderOfTheCalls) {
  const float big = 0x1p24f;
  EXPECT_EQ(Reduce<float>(DType::kF32, ReduceOp::kSum, {big, 1, 1}), big);
  EXPECT_EQ(Reduce<float>(DType::kF32, ReduceOp::kSum, {1, 1, big}), big + 2);
}

TEST(ReduceTest, AveragesMultiplyByTheReciprocal) {
  EXPECT_EQ(Reduce<float>(DType::kF32, ReduceOp::kAvg, {1, 2, 4}),
            7.0f * (1.0f / 3.0f));
  EXPECT_EQ(Reduce<double>(DType::kF64, ReduceOp::kAvg, {1, 2, 4}),
            7.0 * (1.0 / 3.0));
}

// Vector bodies and scalar tails give the same.
TEST(ReduceTest, TheSameAtEveryPlaceInABlock) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const ReduceKernel& kernel = ReduceKernelFor(dtype);
    constexpr uint64_t kCount = 67;
    const auto bytes = static_cast<uint64_t>(DTypeSize(dtype));
    std::vector<unsigned char> a(kCount * bytes), b(kCount * bytes);
    for (size_t i = 0; i < a.size(); ++i) {  // Every element the same.
      a[i] = static_cast<unsigned char>(0x31 + i % bytes);
      b[i] = static_cast<unsigned char>(0x3a + i % bytes);
    }
    std::vector<uint64_t> accumulators(kCount);
    std::vector<unsigned char> result(kCount * bytes);
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      kernel.load(accumulators.data(), a.data(), kCount);
      kernel.combine(op, accumulators.data(), b.data(), kCount);
      kernel.store(op, 2, result.data(), accumulators.data(), kCount);
      for (size_t i = bytes; i < result.size(); ++i) {
        ASSERT_EQ(result[i], result[i % bytes])
            << DTypeName(dtype) << " " << ReduceOpName(op) << " byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace commsched

#include "base/dtype.h"

#include <set>
#include <string>

#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(DTypeTest, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(DTypeSize(DType::kF32), 4u);
  EXPECT_EQ(DTypeSize(DType::kF64), 8u);
  EXPECT_EQ(DTypeSize(DType::kF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kBF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kI8), 1u);
  EXPECT_EQ(DTypeSize(DType::kI32), 4u);
  EXPECT_EQ(DTypeSize(DType::kI64), 8u);
  EXPECT_EQ(DTypeSize(DType::kU8), 1u);
  EXPECT_EQ(DTypeSize(DType::kI16), 2u);
  EXPECT_EQ(DTypeSize(DType::kU16), 2u);
  EXPECT_EQ(DTypeSize(DType::kU32), 4u);
  EXPECT_EQ(DTypeSize(DType::kU64), 8u);
  EXPECT_EQ(DTypeSize(DType::kF8E4M3), 1u);
  EXPECT_EQ(DTypeSize(DType::kF8E5M2), 1u);
  EXPECT_EQ(DTypeSize(DType::kC64), 8u);
  EXPECT_EQ(DTypeSize(DType::kC128), 16u);
  EXPECT_EQ(DTypeSize(DType::kBool), 1u);
}

TEST(DTypeTest, NamesAreDistinctAndParseBack) {
  std::set<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    ASSERT_OK_AND_ASSIGN(const DType dtype, DTypeFromInt(i));
    ASSERT_OK_AND_ASSIGN(const DType parsed, ParseDType(DTypeName(dtype)));
    EXPECT_EQ(parsed, dtype);
    names.emplace(DTypeName(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumDTypes));
  EXPECT_EQ(DTypeName(DType::kBF16), "bf16");
  EXPECT_EQ(DTypeName(DType::kF8E5M2), "f8_e5m2");
  EXPECT_EQ(DTypeName(DType::kBool), "bool");
}

TEST(DTypeTest, UnknownNameIsRefusedWithTheList) {
  EXPECT_THAT(ParseDType("fp8"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "dtype 'fp8' is not one of f32, f64, f16, bf16"));
}

TEST(DTypeTest, NumbersOutsideTheEnumAreRefused) {
  EXPECT_THAT(DTypeFromInt(17), StatusIs(absl::StatusCode::kInvalidArgument,
                                         "dtype 17 is not in 0..16"));
  EXPECT_THAT(DTypeFromInt(-1), StatusIs(absl::StatusCode::kInvalidArgument,
                                         "dtype -1 is not in 0..16"));
}

TEST(ReduceOpTest, NamesParseBack) {
  for (int i = 0; i < kNumReduceOps; ++i) {
    ASSERT_OK_AND_ASSIGN(const ReduceOp op, ReduceOpFromInt(i));
    ASSERT_OK_AND_ASSIGN(const ReduceOp parsed,
                         ParseReduceOp(ReduceOpName(op)));
    EXPECT_EQ(parsed, op);
  }
  EXPECT_EQ(ReduceOpName(ReduceOp::kAvg), "avg");
  EXPECT_EQ(ReduceOpName(ReduceOp::kPremulSum), "premul_sum");
}

TEST(ReduceOpTest, UnknownIsRefused) {
  EXPECT_THAT(ParseReduceOp("xor"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "reduction 'xor' is not one of sum, avg"));
  EXPECT_THAT(ReduceOpFromInt(9), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "reduction 9 is not in 0..8"));
}

TEST(ReduceOpTest, BitsAreOfIntegersAndAScaleIsOfFloatingPointNumbers) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const bool is_integer = dtype >= DType::kI8 && dtype <= DType::kU8;
    const bool is_float = dtype < DType::kI8;
    EXPECT_EQ(IsReducible(dtype, ReduceOp::kBand), is_integer) << d;
    EXPECT_EQ(IsReducible(dtype, ReduceOp::kBxor), is_integer) << d;
    EXPECT_EQ(IsReducible(dtype, ReduceOp::kPremulSum), is_float) << d;
    EXPECT_EQ(IsReducible(dtype, ReduceOp::kProd), is_integer || is_float) << d;
    EXPECT_EQ(IsComputed(dtype), is_integer || is_float) << d;
  }
}

TEST(ReduceOpTest, WhatIsNotReducedIsNamedWithWhatWouldBe) {
  EXPECT_OK(CheckReducible(DType::kI32, ReduceOp::kBor));
  EXPECT_THAT(CheckReducible(DType::kBF16, ReduceOp::kBor),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "dtype bf16 is not reduced by bor, which takes i8, i32, "
                       "i64, u8"));
  EXPECT_THAT(
      CheckReducible(DType::kU8, ReduceOp::kPremulSum),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "dtype u8 is not reduced by premul_sum, which takes f32, "
               "f64, f16, bf16"));
  EXPECT_THAT(
      CheckReducible(DType::kC64, ReduceOp::kSum),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "dtype c64 is not reduced by sum; backends reduce f32, f64, "
               "f16, bf16, i8, i32, i64, u8"));
}

}  // namespace
}  // namespace commsched

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
}

TEST(DTypeTest, UnknownNameIsRefusedWithTheList) {
  EXPECT_THAT(ParseDType("fp8"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "dtype 'fp8' is not one of f32, f64, f16, bf16"));
}

TEST(DTypeTest, NumbersOutsideTheEnumAreRefused) {
  EXPECT_THAT(DTypeFromInt(8), StatusIs(absl::StatusCode::kInvalidArgument,
                                        "dtype 8 is not in 0..7"));
  EXPECT_THAT(DTypeFromInt(-1), StatusIs(absl::StatusCode::kInvalidArgument,
                                         "dtype -1 is not in 0..7"));
}

TEST(ReduceOpTest, NamesParseBack) {
  for (int i = 0; i < kNumReduceOps; ++i) {
    ASSERT_OK_AND_ASSIGN(const ReduceOp op, ReduceOpFromInt(i));
    ASSERT_OK_AND_ASSIGN(const ReduceOp parsed,
                         ParseReduceOp(ReduceOpName(op)));
    EXPECT_EQ(parsed, op);
  }
  EXPECT_EQ(ReduceOpName(ReduceOp::kAvg), "avg");
}

TEST(ReduceOpTest, UnknownIsRefused) {
  EXPECT_THAT(ParseReduceOp("xor"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "reduction 'xor' is not one of sum, avg"));
  EXPECT_THAT(ReduceOpFromInt(5), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "reduction 5 is not in 0..4"));
}

}  // namespace
}  // namespace commsched

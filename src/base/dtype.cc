#include "base/dtype.h"

#include <cstddef>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace commsched {
namespace {

constexpr absl::string_view kDTypeNames[] = {
    "f32", "f64", "f16", "bf16",    "i8",      "i32", "i64",  "u8",  "i16",
    "u16", "u32", "u64", "f8_e4m3", "f8_e5m2", "c64", "c128", "bool"};
constexpr absl::string_view kReduceOpNames[] = {
    "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};
static_assert(std::size(kDTypeNames) == kNumDTypes);
static_assert(std::size(kReduceOpNames) == kNumReduceOps);

template <typename Enum, size_t N>
absl::StatusOr<Enum> Parse(absl::string_view what, absl::string_view name,
                           const absl::string_view (&names)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, " '", name, "' is not one of ", absl::StrJoin(names, ", ")));
}

template <typename Enum>
absl::StatusOr<Enum> FromInt(absl::string_view what, int64_t value, int count) {
  if (value < 0 || value >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", value, " is not in 0..", count - 1));
  }
  return static_cast<Enum>(value);
}

}  // namespace

absl::string_view DTypeName(DType dtype) {
  return kDTypeNames[static_cast<size_t>(dtype)];
}

absl::string_view ReduceOpName(ReduceOp op) {
  return kReduceOpNames[static_cast<size_t>(op)];
}

std::string ComputedDTypeNames() {
  return absl::StrJoin(kDTypeNames, kDTypeNames + kNumComputedDTypes, ", ");
}

std::string GraphReduceOpNames() {
  return absl::StrJoin(kReduceOpNames, kReduceOpNames + kNumGraphReduceOps,
                       ", ");
}

absl::Status CheckReducible(DType dtype, ReduceOp op) {
  if (IsReducible(dtype, op)) return absl::OkStatus();
  const std::string what = absl::StrCat(
      "dtype ", DTypeName(dtype), " is not reduced by ", ReduceOpName(op));
  if (!IsComputed(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, "; backends reduce ", ComputedDTypeNames()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ", which takes ",
                   IsBitwise(op) ? "i8, i32, i64, u8" : "f32, f64, f16, bf16"));
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  return Parse<DType>("dtype", name, kDTypeNames);
}

absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name) {
  return Parse<ReduceOp>("reduction", name, kReduceOpNames);
}

absl::StatusOr<DType> DTypeFromInt(int64_t value) {
  return FromInt<DType>("dtype", value, kNumDTypes);
}

absl::StatusOr<ReduceOp> ReduceOpFromInt(int64_t value) {
  return FromInt<ReduceOp>("reduction", value, kNumReduceOps);
}

}  // namespace commsched
